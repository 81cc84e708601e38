#include "lab/tasks/pi-mnist/pi_mnist.h"

#include "lab/engine/capabilities.h"
#include "lab/tasks/digit_cases.h"
#include "lab/tasks/pi-mnist/model.h"

namespace planish::lab {

namespace {

// Number of first training cases in the training loss: enough for two digits, in a fraction of the
// time of all 55,000.
constexpr int64_t kTrainProbe = 10'000;
// Cases per evaluation batch: enough for a fast GEMM, few enough for the cache.
constexpr int64_t kEvaluationBatch = 1'000;
constexpr bool kTestCurves = true;  // as in the figure

class PiMnist final : public DigitExperiment, public LinearLayersWithNorms {
 public:
  PiMnist(const Settings& settings, const DigitCases& data)
      : DigitExperiment(
            {settings.Int("batch_size"), kTrainProbe, kEvaluationBatch, "error", kTestCurves},
            data),
        norm_options_(MakeOptions(settings).norm_options),
        model_(MakeOptions(settings)) {}

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
  static PixelMlp::Options MakeOptions(const Settings& settings) {
    const std::string norm = settings.Text("norm");
    const std::string variance = settings.Text("bn_variance");
    PixelMlp::Options options;
    options.norm = norm;
    options.width = settings.Int("width");
    options.depth = settings.Int("depth");
    options.norm_on_logits = norm == "batch";
    options.norm_options.unbiased_variance =
        variance == "unbiased" || (variance == "auto" && settings.Int("batch_size") <= 4);
    return options;
  }

  NormOptions norm_options_;
  PixelMlp model_;
};

ReportSpec MakeReport() {
  ReportSpec report;
  report.title = "Permutation-invariant MNIST";
  report.source = "Ba, Kiros & Hinton 2016, section 6.6 and Figure 6";
  report.compare = "norm";
  report.baseline = "none";
  report.panel = "batch_size";
  report.curves = {"train_nll", "test_error"};
  report.headline = "test_error";
  report.targets = {{"test_error", {0.1, 0.05, 0.03, 0.02, 0.015}}};
  return report;
}

class PiMnistTask final : public DigitTask {
 public:
  PiMnistTask() {
    name = "pi-mnist";
    summary =
        "permutation-invariant MNIST, a 784-1000-1000-10 network (Ba et al. 2016, 6.6, Fig 6)";
    settings = EngineSettings(NormSetting(NormNames()));
    const std::vector<SettingSpec> own = {
        {"width", 1000, "units of each hidden layer", 1, 65536, {}},
        {"depth", 2, "hidden layers", 1, 64, {}},
        Choice("bn_variance", "auto",
               "batch norm's variance in training; auto: unbiased up to batch size 4",
               {"auto", "biased", "unbiased"}),
    };
    AddSettings(own);
    AddDigits("error");
    presets = {
        {"paper", "784-1000-1000-10 on 55,000 cases for 60 epochs, as printed", {}},
        {"small",
         "784-256-256-10 on 10,000 cases for 4 epochs: seconds a run on two cores",
         {{"width", 256},
          {"train_cases", 10000},
          {"valid_cases", 2000},
          {"test_cases", 5000},
          {"epochs", 4},
          {"evaluations_per_epoch", 4}}},
        {"smoke",
         "784-32-32-10 on 512 cases for 2 epochs: a test that it runs",
         {{"width", 32},
          {"train_cases", 512},
          {"valid_cases", 128},
          {"test_cases", 128},
          {"epochs", 2}}},
    };
    report = MakeReport();
  }

  std::unique_ptr<Experiment> MakeExperiment(const Settings& s,
                                             const DigitCases& data) const override {
    return std::make_unique<PiMnist>(s, data);
  }
};

}  // namespace

std::unique_ptr<Task> MakePiMnist() { return std::make_unique<PiMnistTask>(); }

}  // namespace planish::lab
