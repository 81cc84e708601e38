#include "lab/tasks/pi-mnist/classifier.h"

#include "lab/engine/capabilities.h"
#include "lab/tasks/pi-mnist/model.h"

namespace planish::lab {

namespace {

// Number of first training cases in the training loss: enough for two digits, in a fraction of the
// time of all 55,000.
constexpr int64_t kTrainProbe = 10'000;
// Cases per evaluation batch: enough for a fast GEMM, few enough for the cache.
constexpr int64_t kEvaluationBatch = 1'000;

class MlpClassifier final : public DigitExperiment, public LinearLayersWithNorms {
 public:
  MlpClassifier(const Settings& settings, const DigitCases& data, const std::string& metric,
                bool test_curves)
      : DigitExperiment(
            {settings.Int("batch_size"), kTrainProbe, kEvaluationBatch, metric, test_curves}, data),
        norm_options_(MakeOptions(settings, data).norm_options),
        model_(MakeOptions(settings, data)) {}

  torch::nn::Module& model() override { return model_; }

  std::vector<Layer> LayersWithNorms(int64_t cases) override {
    const std::vector<PixelMlp::Layer>& layers = model_.layers();
    const at::Tensor x = FirstCases(data().test, cases).x.to(layers[0].linear->weight.options());
    const std::vector<at::Tensor> inputs = model_.InputsOfLayers(x);
    std::vector<Layer> found;
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto& [linear, norm, name] = layers[i];
      if (name == "none") continue;
      found.push_back({.name = "linear" + std::to_string(i),
                       .norm = name,
                       .options = norm_options_,
                       .x = inputs[i],
                       .weight = linear->weight,
                       .bias = linear->bias,
                       .of_norm = norm.get()});
    }
    return found;
  }

 protected:
  at::Tensor Logits(const at::Tensor& x) override { return model_.forward(x); }

 private:
  static PixelMlp::Options MakeOptions(const Settings& settings, const DigitCases& data) {
    const std::string norm = settings.Text("norm");
    const std::string variance = settings.Text("bn_variance");
    PixelMlp::Options options;
    options.norm = norm;
    options.inputs = data.shape.values();
    options.classes = data.classes;
    options.width = settings.Int("width");
    options.depth = settings.Int("depth");
    options.norm_on_logits = norm == "batch";
    if (settings.Has("ada_c")) options.norm_options = NormOptionsOf(settings);
    options.norm_options.unbiased_variance =
        variance == "unbiased" || (variance == "auto" && settings.Int("batch_size") <= 4);
    return options;
  }

  NormOptions norm_options_;
  PixelMlp model_;
};

}  // namespace

std::vector<SettingSpec> MlpSettings() {
  return {
      {"width", 1000, "units of each hidden layer", 1, 65536, {}},
      {"depth", 2, "hidden layers", 1, 64, {}},
      Choice("bn_variance", "auto",
             "batch norm's variance in training; auto: unbiased up to batch size 4",
             {"auto", "biased", "unbiased"}),
  };
}

std::unique_ptr<DigitExperiment> MakeMlpClassifier(const Settings& settings, const DigitCases& data,
                                                   const std::string& metric, bool test_curves) {
  return std::make_unique<MlpClassifier>(settings, data, metric, test_curves);
}

}  // namespace planish::lab
