#include "lab/tasks/convnet/convnet.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/error.h"
#include "lab/tasks/convnet/borders.h"
#include "lab/tasks/convnet/model.h"
#include "lab/tasks/convnet/shapes.h"
#include "lab/tasks/digit_cases.h"

namespace planish::lab {

namespace {

// Cases of every evaluation's training error and of the units' statistics.
constexpr int64_t kTrainProbe = 2'000;
constexpr int64_t kStatisticsProbe = 200;
// Cases per evaluation batch: their activations stay in cache.
constexpr int64_t kEvaluationBatch = 50;

class ConvNetExperiment final : public DigitExperiment {
 public:
  ConvNetExperiment(const Settings& settings, const DigitCases& data)
      : DigitExperiment({settings.Int("batch_size"), kTrainProbe, kEvaluationBatch}, data),
        model_(MakeOptions(settings)) {}

  torch::nn::Module& model() override { return model_; }

  Values Evaluate() override {
    Values values = DigitExperiment::Evaluate();
    double border = 0, inside = 0, ratio = 0;
    const std::vector<BorderStatistics> all = Statistics();
    for (const BorderStatistics& layer : all) {
      border += layer.border.on;
      inside += layer.inside.on;
      // A network whose weights are all 0 has no ratio.
      ratio += layer.inside.deviation > 0 ? layer.border.deviation / layer.inside.deviation : 0;
    }
    const auto count = static_cast<double>(all.size());
    values["border_on"] = border / count;
    values["inside_on"] = inside / count;
    values["border_deviation"] = ratio / count;
    return values;
  }

  std::vector<RunResult::Sample> Samples(at::Generator& /*generator*/) override {
    const std::vector<BorderStatistics> all = Statistics();
    std::string text =
        fmt::format("{:<13}{:>22}{:>24}{:>26}\n{:<13}{:>11}{:>11}{:>12}{:>12}{:>13}{:>13}\n", "",
                    "on, %", "mean of sums", "deviation of sums", "convolution", "border", "inside",
                    "border", "inside", "border", "inside");
    for (size_t i = 0; i < all.size(); ++i) {
      const auto& [border, inside] = all[i];
      text += fmt::format("{:<13}{:>11.1f}{:>11.1f}{:>12.3f}{:>12.3f}{:>13.3f}{:>13.3f}\n", i + 1,
                          100 * border.on, 100 * inside.on, border.mean, inside.mean,
                          border.deviation, inside.deviation);
    }
    return {{fmt::format("Units near the border of the images and inside, of {} validation cases",
                         std::min(kStatisticsProbe, data().valid.x.size(0))),
             text}};
  }

 protected:
  at::Tensor Logits(const at::Tensor& x) override { return model_.forward(x); }

 private:
  static ConvNet::Options MakeOptions(const Settings& settings) {
    ConvNet::Options options;
    options.norm = settings.Text("norm");
    options.channels = settings.Int("channels");
    options.hidden = settings.Int("hidden");
    options.norm_options = NormOptionsOf(settings);
    return options;
  }

  std::vector<BorderStatistics> Statistics() {
    std::vector<BorderStatistics> statistics;
    for (const ConvNet::Units& units :
         model_.UnitsOf(OnDevice(FirstCases(data().valid, kStatisticsProbe).x))) {
      Poll();
      statistics.push_back(StatisticsOf(units));
    }
    return statistics;
  }

  ConvNet model_;
};

class ConvNetTask final : public DigitTask {
 public:
  ConvNetTask() {
    name = "convnet";
    summary = "convolutional network and its units near the border (Ba et al. 2016, 6.7)";
    settings = EngineSettings(NormSetting(ConvNetNorms()));
    Default("batch_size", 64);
    AddSettings(NormDetails());
    AddSettings({
        Choice("images", "digits",
               "digits: MNIST, or synthetic without data; shapes: synthetic grey shapes",
               {"digits", "shapes"}),
        {"channels",
         32,
         "channels of the first two convolutions; the others have twice as many",
         1,
         4096,
         {}},
        {"hidden", 256, "units of the linear layer", 1, 65536, {}},
    });
    AddDigits("error");
    data_settings.emplace_back("images");
    presets = {
        {"small",
         "half of the channels, 10,000 cases for 3 epochs: a minute a run on one core",
         {{"channels", 16},
          {"hidden", 128},
          {"train_cases", 10000},
          {"valid_cases", 2000},
          {"test_cases", 10000},
          {"epochs", 3}}},
        {"paper",
         "32 and 64 channels, 55,000 cases for 20 epochs; the paper prints no sizes",
         {{"epochs", 20}}},
        {"smoke",
         "4 and 8 channels on 256 cases for 2 epochs: a test that it runs",
         {{"channels", 4},
          {"hidden", 16},
          {"train_cases", 256},
          {"valid_cases", 64},
          {"test_cases", 64},
          {"epochs", 2}}},
    };
    metrics.push_back({"border_on", "units near the border that are on", "%", false});
    metrics.push_back({"inside_on", "units inside that are on", "%", false});
    metrics.push_back(
        {"border_deviation", "deviation of sums near the border over that inside", "", false});
    report = MakeReport();
  }

  void Check(const Settings& s, const Dataset& data) const override {
    Task::Check(s, data);
    if (s.Int("valid_cases") < 2) {
      throw UsageError(
          fmt::format("[convnet] valid_cases must be at least 2, got {}", s.Int("valid_cases")));
    }
  }

  std::unique_ptr<Dataset> Load(const Settings& s,
                                const std::optional<std::filesystem::path>& folder) const override {
    if (s.Text("images") == "digits") return DigitTask::Load(s, folder);
    const int64_t train = s.Int("train_cases") + s.Int("valid_cases");
    return CutCases(name, s, DrawShapes({.train = train, .test = s.Int("test_cases")}));
  }

  std::unique_ptr<Experiment> MakeExperiment(const Settings& s,
                                             const DigitCases& data) const override {
    return std::make_unique<ConvNetExperiment>(s, data);
  }

 private:
  static ReportSpec MakeReport() {
    ReportSpec report;
    report.title = "A convolutional network";
    report.source = "Ba, Kiros & Hinton 2016, section 6.7";
    report.compare = "norm";
    report.baseline = "none";
    report.panel = "images";
    report.curves = {"train_nll", "valid_error", "border_on", "inside_on", "border_deviation"};
    report.headline = "test_error";
    report.targets = {{"valid_error", {0.1, 0.05, 0.03, 0.02}}};
    report.notes = {
        "The paper prints no network, no data and no results for this experiment: network and data "
        "are our choice.",
        "Near the border: within an eighth of the image's side from it (3 of 28 positions, 1 of "
        "14). The paper explains why layer normalization is worse than batch normalization by the "
        "units there: they are rarely turned on, so their statistics differ from those of the rest "
        "of the layer.",
    };
    return report;
  }
};

}  // namespace

std::unique_ptr<Task> MakeConvNet() { return std::make_unique<ConvNetTask>(); }

}  // namespace planish::lab
