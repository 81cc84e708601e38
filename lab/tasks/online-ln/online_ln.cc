#include "lab/tasks/online-ln/online_ln.h"

#include <fmt/format.h>
#include <torch/nn/modules/linear.h>

#include <sstream>

#include "lab/base/norm_name.h"
#include "lab/engine/capabilities.h"
#include "lab/tasks/digit_cases.h"
#include "lab/tasks/online-ln/model.h"
#include "src/norm/online/alpha_rule.h"

namespace planish::lab {

namespace {

// As in pi-mnist.
constexpr int64_t kTrainProbe = 10'000;
constexpr int64_t kEvaluationBatch = 1'000;
constexpr size_t kLayers = 3;

// Names of online norms combine norm and alpha, because the other norms have no alpha and are
// compared with each of them.
std::vector<std::string> Norms() {
  std::vector<std::string> norms = {"none", "layer", "batch", "weight"};
  for (const OnlineNormName& online : kOnlineNormNames) norms.emplace_back(online.name);
  return norms;
}

std::vector<std::string> Schedules() {
  std::vector<std::string> names;
  for (const internal::AlphaRuleName& row : internal::kAlphaRules) names.emplace_back(row.name);
  return names;
}

class OnlineLn final : public DigitExperiment, public LinearLayersWithNorms {
 public:
  OnlineLn(const Settings& settings, const DigitCases& data)
      : DigitExperiment({settings.Int("batch_size"), kTrainProbe, kEvaluationBatch}, data),
        norm_(settings.Text("norm")),
        norm_options_(MakeOptions(settings).norm_options),
        model_(MakeOptions(settings)) {}

  torch::nn::Module& model() override { return model_; }

  std::vector<Layer> LayersWithNorms(int64_t cases) override {
    std::vector<Layer> found;
    if (norm_ == "none") return found;
    const at::Tensor x = FirstCases(data().test, cases).x.to(model_.parameters()[0].options());
    for (const OnlineMlp::Layer& layer : model_.Layers(x)) {
      found.push_back({.name = "linear" + std::to_string(found.size()),
                       .norm = norm_,
                       .options = norm_options_,
                       .x = layer.x,
                       .weight = layer.linear->weight,
                       .bias = layer.linear->bias,
                       .of_norm = layer.norm});
    }
    return found;
  }

  Values Evaluate() override {
    Values values = DigitExperiment::Evaluate();
    const auto statistics =
        model_.StatisticsOf(OnDevice(FirstCases(data().valid, kEvaluationBatch).x));
    for (size_t layer = 0; layer < statistics.size(); ++layer) {
      values["mu_" + std::to_string(layer)] = statistics[layer].mu;
      values["sigma_" + std::to_string(layer)] = statistics[layer].sigma;
    }
    return values;
  }

  std::vector<RunResult::Sample> Samples(at::Generator& /*generator*/) override {
    std::ostringstream text;
    text << model_.net();
    return {{"The network, as printed", text.str()}};
  }

 protected:
  at::Tensor Logits(const at::Tensor& x) override { return model_.forward(x); }

 private:
  static OnlineMlp::Options MakeOptions(const Settings& settings) {
    OnlineMlp::Options options;
    options.norm = settings.Text("norm");
    for (const OnlineNormName& online : kOnlineNormNames) {
      if (options.norm != online.name) continue;
      options.norm = "online";
      options.alpha = online.alpha;
      options.schedule = settings.Text("alpha_schedule");
      break;
    }
    options.hidden.assign(kLayers - 1, settings.Int("width"));
    options.norm_options.epsilon = settings.Real("eps");
    return options;
  }

  std::string norm_;
  NormOptions norm_options_;
  OnlineMlp model_;
};

class OnlineLnTask final : public DigitTask {
 public:
  OnlineLnTask() {
    name = "online-ln";
    summary = "online layer normalization with several alpha: a 784-128-128-10 network on digits";
    settings = EngineSettings(NormSetting(Norms()));
    AddSettings({{"width", 128, "units of each of the two hidden layers", 2, 65536, {}},
                 {"eps", 1e-5, "added to the variance by the norms layer and batch", 0, 1, {}},
                 Choice("alpha_schedule", "constant",
                        "online norms' weight of training case t: constant, A; inverse, 1/t; "
                        "warmup, max(A, 1/t)",
                        Schedules())});
    AddDigits("error");
    presets = {
        {"small",
         "10,000 cases for 3 epochs: seconds a run on one core, 20 at batch size 1",
         {{"train_cases", 10000}, {"valid_cases", 5000}, {"epochs", 3}}},
        {"paper", "55,000 cases for 10 epochs; the post trains nothing", {{"epochs", 10}}},
        {"smoke",
         "784-16-16-10 on 512 cases for 2 epochs: a test that it runs",
         {{"width", 16},
          {"train_cases", 512},
          {"valid_cases", 128},
          {"test_cases", 128},
          {"epochs", 2}}},
    };
    for (size_t layer = 0; layer < kLayers; ++layer) {
      const std::string of = fmt::format(" of layer {}'s sums", layer + 1);
      metrics.push_back({"mu_" + std::to_string(layer), "mean" + of, "", true});
      metrics.push_back({"sigma_" + std::to_string(layer), "deviation" + of, "", true});
    }
    report.title = "Online layer normalization";
    report.source = "T. Breloff, Online Layer Normalization, 2016";
    report.compare = "norm";
    why_whole = "online normalization goes through the cases of a batch one after another";
    report.baseline = "layer";
    report.panel = "batch_size";
    report.curves = {"train_nll", "valid_error"};
    for (const MetricSpec& metric : metrics) {
      if (metric.unit.empty()) report.curves.push_back(metric.name);
    }
    report.headline = "test_error";
    report.targets = {{"valid_error", {0.1, 0.05, 0.03}}};
    report.notes = {
        "online-A keeps a running mean and a running deviation for each layer. Every case moves "
        "both by the fraction A towards its own mean and deviation. online-1 is layer "
        "normalization with the unbiased deviation. With another alpha_schedule the fraction of "
        "case t is 1/t or max(A, 1/t), counted from the first training case.",
        "Means and deviations of a layer: for online norms the running ones, otherwise the average "
        "over the validation cases.",
        "The post derives the method and trains nothing: network and data are our choice.",
    };
  }

  std::unique_ptr<Experiment> MakeExperiment(const Settings& s,
                                             const DigitCases& data) const override {
    return std::make_unique<OnlineLn>(s, data);
  }
};

}  // namespace

std::unique_ptr<Task> MakeOnlineLn() { return std::make_unique<OnlineLnTask>(); }

}  // namespace planish::lab
