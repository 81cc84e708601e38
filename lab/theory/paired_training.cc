#include "lab/theory/paired_training.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "lab/analysis/format.h"
#include "lab/analysis/statistics.h"
#include "lab/engine/adam.h"
#include "lab/engine/load_data.h"
#include "lab/engine/sgd.h"
#include "lab/engine/train.h"
#include "lab/error.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {
namespace {

const Task& TrainedTask() { return FindTask("pi-mnist"); }

std::unique_ptr<Optimizer> OptimizerNamed(const std::string& name, NamedTensors parameters,
                                          double learning_rate) {
  if (name == "sgd") return std::make_unique<Sgd>(std::move(parameters), learning_rate);
  return std::make_unique<Adam>(std::move(parameters),
                                Adam::Options{.learning_rate = learning_rate});
}

}  // namespace

DigitTraining::DigitTraining(const Settings& settings, const DigitCases& data,
                             const std::string& optimizer, double learning_rate, int64_t seed)
    : experiment_(TrainedTask().MakeSeeded(settings, data, seed)),
      model_(dynamic_cast<PixelMlp&>(experiment_->model())),
      optimizer_(OptimizerNamed(optimizer, ParametersOf(model_), learning_rate)),
      seed_(seed) {}

at::Tensor DigitTraining::NextBatch() {
  if (epoch_ < 0 || next_ == plan_.batches()) {
    at::Generator order = OrderGenerator(seed_, ++epoch_);
    plan_ = experiment_->PlanEpoch(order);
    next_ = 0;
  }
  return plan_.batch(next_);
}

double DigitTraining::Step() {
  const std::array<at::Tensor, 1> batch = {NextBatch()};
  ++next_;
  return UpdateWeights(*experiment_, *optimizer_, batch).loss;
}

std::vector<AnalysisSetting> PairedTrainings::SettingsWith(double depth, double steps) {
  return {{"width", "units of a hidden layer", 64, 3, 4096},
          {"depth", "hidden layers", depth, 1, 16},
          {"cases", "training cases", 2000, 4, 50'000},
          {"batch", "cases of a batch", 64, 4, 50'000},
          {"steps", "updates of a training", steps, 2, 1e6},
          {"sgd-lr", "learning rate of SGD", 0.1, 1e-6, 1e3, false},
          {"adam-lr", "learning rate of Adam", 1e-3, 1e-6, 1e3, false},
          {"seeds", "trainings of each norm and optimizer", 5, 2, 100},
          {"seed", "first seed", 1, 0, 0x1p53}};
}

std::vector<AnalysisList> PairedTrainings::ListsWith(std::vector<std::string> norms,
                                                     std::vector<std::string> optimizers) {
  return {{"norm", "norms", {"none", "weight", "batch", "layer"}, std::move(norms)},
          {"optimizer", "optimizers", {"sgd", "adam"}, std::move(optimizers)}};
}

PairedTrainings::PairedTrainings(std::string analysis, const AnalysisSettings& settings,
                                 int64_t probe, TheoryResult& result)
    : analysis_(std::move(analysis)), settings_(settings), probe_(probe) {
  const int64_t batch = settings.Whole("batch"), cases = settings.Whole("cases");
  if (batch > cases) {
    throw UsageError(fmt::format("[analyze {}] --batch must be at most --cases, {}, got {}",
                                 analysis_, cases, batch));
  }
  owned_ = LoadData(TrainedTask(), SettingsOf("none"), settings.input().data);
  data_ = &dynamic_cast<const DigitCases&>(*owned_);
  result.settings["data"] = data_->about.name;
}

Settings PairedTrainings::SettingsOf(const std::string& norm) const {
  Settings settings(TrainedTask().settings);
  const auto set = [&](const char* name, int64_t value) {
    settings.Set(name, std::to_string(value));
  };
  settings.Set("norm", norm);
  set("width", settings_.Whole("width"));
  set("depth", settings_.Whole("depth"));
  set("batch_size", settings_.Whole("batch"));
  set("train_cases", settings_.Whole("cases"));
  set("valid_cases", probe_);
  set("test_cases", 1);  // not used
  return settings;
}

std::vector<TrainingCase> PairedTrainings::Cases() const {
  std::vector<TrainingCase> cases;
  for (const std::string& optimizer : settings_.List("optimizer")) {
    for (const std::string& norm : settings_.List("norm")) cases.push_back({norm, optimizer});
  }
  return cases;
}

double PairedTrainings::LearningRate(const std::string& optimizer) const {
  return settings_.Number(optimizer + "-lr");
}

DigitTraining PairedTrainings::Start(const TrainingCase& which, int64_t index) const {
  return {SettingsOf(which.norm), *data_, which.optimizer, LearningRate(which.optimizer),
          settings_.Whole("seed") + index};
}

void PairedTrainings::Step(const TrainingCase& which, DigitTraining& training) const {
  if (std::isfinite(training.Step())) return;
  throw UsageError(fmt::format(
      "[analyze {}] --{}-lr must be small enough for a finite loss with norm {}, got {:.10g}",
      analysis_, which.optimizer, which.norm, LearningRate(which.optimizer)));
}

std::string PairedTrainings::Description() const {
  std::string layers;
  for (int64_t i = 0; i < settings_.Whole("depth"); ++i) {
    layers += fmt::format("{}-", settings_.Whole("width"));
  }
  return fmt::format("784-{}10 on {}, {} updates of {} cases, {} seeds", layers, data_->about.name,
                     steps(), settings_.Whole("batch"), seeds());
}

void SignedCases::Add(const std::string& name, const Estimate& estimate) {
  const int sign = SureSign(estimate);
  List& list = sign > 0 ? above_ : sign < 0 ? below_ : unclear_;
  list.cases += (list.count == 0 ? "" : ", ") + name;
  ++list.count;
}

std::string SignedCases::Text() const {
  std::string text;
  for (const List* list : {&above_, &below_, &unclear_}) {
    if (list->count == 0) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", list->name, list->cases);
  }
  return text;
}

void AddFactor(const Estimate& log, int digits, std::vector<TheoryCell>& row) {
  const auto text = [digits](double end) { return FormatSignificant(std::exp(end), digits); };
  row.emplace_back(log.count > 0 ? std::exp(log.mean) : NAN);
  row.emplace_back(log.half_width ? text(log.low()) + "-" + text(log.high()) : "");
}

TheoryLine LineOf(std::string name, const std::vector<double>& values) {
  TheoryLine line{.name = std::move(name), .points = {}};
  const size_t stride = (values.size() + 199) / 200;
  for (size_t i = 0; i < values.size(); i += stride) {
    line.points.emplace_back(static_cast<double>(i + 1), values[i]);
  }
  return line;
}

}  // namespace planish::lab
