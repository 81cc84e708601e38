#include "lab/tasks/mnist-cnn/classifier.h"

#include "lab/tasks/mnist-cnn/model.h"

namespace planish::lab {

namespace {

// Number of first training cases in the training metrics: the paper's number of validation cases.
constexpr int64_t kTrainProbe = 5'000;
// Cases per evaluation batch: their activations stay in cache.
constexpr int64_t kEvaluationBatch = 100;

class CnnClassifier final : public DigitExperiment {
 public:
  CnnClassifier(const Settings& settings, const DigitCases& data)
      : DigitExperiment({settings.Int("batch_size"), kTrainProbe, kEvaluationBatch, "accuracy"},
                        data),
        model_(MakeOptions(settings, data)) {}

  torch::nn::Module& model() override { return model_; }

 protected:
  at::Tensor Logits(const at::Tensor& x) override { return model_.forward(x); }

 private:
  static DigitCnn::Options MakeOptions(const Settings& settings, const DigitCases& data) {
    DigitCnn::Options options;
    options.norm = settings.Text("norm");
    options.norm_convolutions = settings.Text("norm_at") == "all";
    options.hidden = settings.Int("hidden");
    options.shape = data.shape;
    options.classes = data.classes;
    options.norm_options = NormOptionsOf(settings);
    return options;
  }

  DigitCnn model_;
};

}  // namespace

std::vector<SettingSpec> CnnSettings() {
  return {
      Choice("norm_at", "all",
             "norms before the activations of all layers, or only of the linear one",
             {"all", "linear"}),
      {"hidden", 500, "units of the linear layer", 1, 65536, {}},
  };
}

std::unique_ptr<DigitExperiment> MakeCnnClassifier(const Settings& settings,
                                                   const DigitCases& data) {
  return std::make_unique<CnnClassifier>(settings, data);
}

}  // namespace planish::lab
