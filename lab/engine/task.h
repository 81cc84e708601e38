#ifndef PLANISH_LAB_ENGINE_TASK_H_
#define PLANISH_LAB_ENGINE_TASK_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/engine/batches.h"
#include "lab/engine/settings.h"
#include "lab/model/norms.h"
#include "lab/run/results.h"

// What an experiment must say of itself. The engine (train.h) knows nothing else of it, and the
// task nothing of seeds, optimisers, checkpoints, files or progress.
namespace planish::lab {

/// Metric name -> value.
using Values = std::map<std::string, double>;

/// Data that a task has read or drawn; runs of a sweep share it.
struct Dataset {
  virtual ~Dataset() = default;
  RunConfig::Data about;
};

using Tensors = std::vector<at::Tensor>;

/// Thrown through an evaluation that is not to go on.
struct EvaluationStopped {};

/// A model with its data: what the engine trains.
class Experiment {
 public:
  virtual ~Experiment() = default;

  virtual torch::nn::Module& model() = 0;

  /// Batches of the next epoch. Every random choice is drawn from `generator`.
  virtual EpochPlan PlanEpoch(at::Generator& generator) = 0;

  /// What Loss needs of a batch's cases, gathered from the data: the input pipeline, which a run
  /// times. Gradients are off.
  virtual Tensors Batch(const at::Tensor& cases) = 0;

  /// Mean loss over a batch, to be differentiated. The model is in training mode.
  virtual at::Tensor Loss(const Tensors& batch) = 0;

  /// Metrics of training and validation. The model is in evaluation mode and gradients are off.
  virtual Values Evaluate() = 0;

  /// Metrics of the test set. Asked for once, when the run has finished, with the weights of the
  /// evaluation that validation chose (Task::choose_by). Otherwise as Evaluate. A task whose paper
  /// draws test curves may have them in Evaluate instead.
  virtual Values Test() { return {}; }

  /// Texts that the report shows of the trained model; none by default. Asked for once, as Test.
  /// Every random choice is drawn from `generator`.
  virtual std::vector<RunResult::Sample> Samples(at::Generator& /*generator*/) { return {}; }

  /// Asked by Poll; true stops the evaluation that is running.
  void SetStop(std::function<bool()> stop) { stop_ = std::move(stop); }

 protected:
  /// To be called between the parts of Evaluate, Test and Samples, a few seconds apart at most, so
  /// that Ctrl-C need not wait for their end.
  void Poll() const {
    if (stop_ && stop_()) throw EvaluationStopped();
  }

 private:
  std::function<bool()> stop_;
};

/// The engine's own metric: the mean training loss of the batches since the last evaluation.
inline constexpr char kTrainLoss[] = "train_loss";

/// An experiment of a paper, before any choice is made.
class Task {
 public:
  virtual ~Task() = default;

  std::string name;                   ///< as on the command line
  std::string summary;                ///< one line for `planish list`
  std::vector<SettingSpec> settings;  ///< EngineSettings and its own; the paper's where it prints
  std::vector<Preset> presets;        ///< the first is the default; small and smoke are there
  std::vector<MetricSpec> metrics;    ///< those of Evaluate, of Test, and kTrainLoss
  std::string choose_by;              ///< validation metric that picks the best evaluation
  ReportSpec report;

  /// Reads the data from `folder`, or makes the embedded default. Throws DataError.
  virtual std::unique_ptr<Dataset> Load(
      const Settings& settings, const std::optional<std::filesystem::path>& folder) const = 0;

  /// The settings that decide what Load gives: runs that agree on them share it.
  std::vector<std::string> data_settings;

  /// Throws UsageError where settings do not fit the data, so that a sweep refuses them before it
  /// begins. Every task's batch size must be at most the training cases, unless it counts
  /// otherwise.
  virtual void Check(const Settings& settings, const Dataset& data) const;

  /// Builds model and batches. Initial weights are drawn from the default generator, which the
  /// engine has seeded; normalisation layers draw nothing, so that all norms start from the same
  /// weights.
  virtual std::unique_ptr<Experiment> Make(const Settings& settings, const Dataset& data) const = 0;

 protected:
  /// Gives a setting of the engine another default and, unless empty, another help.
  void Default(std::string_view setting, nlohmann::ordered_json value, std::string help = "");

  /// Adds settings behind those that there are.
  void AddSettings(const std::vector<SettingSpec>& more);
};

/// Settings that every task has, because the engine reads them, after `compared`, the one whose
/// values the task compares (ReportSpec::compare), such as the norm.
std::vector<SettingSpec> EngineSettings(const SettingSpec& compared);

/// Settings that the engine reads, too, of tasks that have them: clip_each and adam, for papers
/// whose code was Theano's.
std::vector<SettingSpec> TheanoSettings();

/// The setting "norm" with these values.
SettingSpec NormSetting(const std::vector<std::string>& norms);

/// Settings of the norms themselves: eps, and C and k of AdaNorm.
std::vector<SettingSpec> NormDetails();

/// What NormDetails' settings say.
NormOptions NormOptionsOf(const Settings& settings);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_TASK_H_
