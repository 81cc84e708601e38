#ifndef PLANISH_LAB_ENGINE_TASK_H_
#define PLANISH_LAB_ENGINE_TASK_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/engine/settings.h"
#include "lab/run/results.h"

// What an experiment must say of itself. The engine (train.h) knows nothing else of it, and the
// task nothing of seeds, optimisers, checkpoints, files or progress.
namespace planish::lab {

/// Metric name -> value.
using Values = std::map<std::string, double>;

/// The batches of one epoch: batch b is the cases order[offsets[b]] .. order[offsets[b + 1] - 1].
struct EpochPlan {
  at::Tensor order;              ///< int64 case numbers
  std::vector<int64_t> offsets;  ///< batches + 1 positions in `order`

  int64_t batches() const { return static_cast<int64_t>(offsets.size()) - 1; }
  /// Case numbers of batch `b`: a view into `order`.
  at::Tensor batch(int64_t b) const;
};

/// All `cases` in random order, cut into batches of `batch_size`. The remainder of an epoch that
/// does not fill a batch is left out (another one each epoch), so that every update averages as
/// many cases.
EpochPlan ShuffledBatches(int64_t cases, int64_t batch_size, at::Generator& generator);

/// Data that a task has read or drawn; runs of a sweep share it.
struct Dataset {
  virtual ~Dataset() = default;
  RunConfig::Data about;
};

/// A model with its data: what the engine trains.
class Experiment {
 public:
  virtual ~Experiment() = default;

  virtual torch::nn::Module& model() = 0;

  /// Batches of the next epoch. Every random choice is drawn from `generator`.
  virtual EpochPlan PlanEpoch(at::Generator& generator) = 0;

  /// Mean loss over the cases of a batch, to be differentiated. The model is in training mode.
  virtual at::Tensor Loss(const at::Tensor& cases) = 0;

  /// Every metric that the task declares, but for kTrainLoss. The model is in evaluation mode and
  /// gradients are off.
  virtual Values Evaluate() = 0;

  /// Texts that the report shows of the trained model; none by default. Asked for once, when the
  /// run has finished, in evaluation mode and with gradients off. Every random choice is drawn from
  /// `generator`.
  virtual std::vector<RunResult::Sample> Samples(at::Generator& /*generator*/) { return {}; }
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
  std::vector<MetricSpec> metrics;
  std::string choose_by;  ///< validation metric that picks the best evaluation
  ReportSpec report;

  /// Reads the data from `folder`, or makes the embedded default. Throws DataError.
  virtual std::unique_ptr<Dataset> Load(
      const Settings& settings, const std::optional<std::filesystem::path>& folder) const = 0;

  /// The settings that decide what Load gives: runs that agree on them share it.
  std::vector<std::string> data_settings;

  /// Builds model and batches. Initial weights are drawn from the default generator, which the
  /// engine has seeded; normalisation layers draw nothing, so that all norms start from the same
  /// weights.
  virtual std::unique_ptr<Experiment> Make(const Settings& settings, const Dataset& data) const = 0;
};

/// Settings that every task has, because the engine reads them, after `compared`, the one whose
/// values the task compares (ReportSpec::compare), such as the norm.
std::vector<SettingSpec> EngineSettings(const SettingSpec& compared);

/// The setting "norm" with these values.
SettingSpec NormSetting(const std::vector<std::string>& norms);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_TASK_H_
