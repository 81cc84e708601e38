#ifndef PLANISH_LAB_ENGINE_TASK_H_
#define PLANISH_LAB_ENGINE_TASK_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/engine/batches.h"
#include "lab/engine/device.h"
#include "lab/engine/optimizer.h"
#include "lab/engine/settings.h"
#include "lab/model/norms.h"
#include "lab/run/results.h"

// Interface between an experiment and the engine (train.h). The engine knows nothing else of an
// experiment; a task knows nothing of seeds, optimizers, checkpoints, files or progress.
namespace planish::lab {

/// Metric name -> value.
using Values = std::map<std::string, double>;

/// Data that a task has read or generated. The runs of a sweep share it.
struct Dataset {
  virtual ~Dataset() = default;
  RunConfig::Data about;
};

/// Returns a Dataset's `about`: the name, source and hash of `set`, and the cases of each split.
template <class Set>
RunConfig::Data AboutSplits(const Set& set, const std::string& description, int64_t train,
                            int64_t valid, int64_t test) {
  return {set.name,
          set.source,
          description,
          set.sha256,
          {{"train", train}, {"valid", valid}, {"test", test}}};
}

using Tensors = std::vector<at::Tensor>;

/// What an exported model keeps of a Dataset, such as its vocabulary.
struct PackedData {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  NamedTensors tensors;  ///< on the CPU
};

/// Adds a text as a tensor of bytes.
void AddBytes(PackedData& packed, const std::string& name, std::string_view text);

/// Returns the tensor of that name, or the text that AddBytes added. Throws std::invalid_argument
/// if there is none.
const at::Tensor& TensorNamed(const PackedData& packed, std::string_view name);
std::string BytesNamed(const PackedData& packed, std::string_view name);

/// Exception that stops an evaluation.
struct EvaluationStopped {};

/// Model with its data, as the engine trains it.
class Experiment {
 public:
  virtual ~Experiment() = default;

  virtual torch::nn::Module& model() = 0;

  /// Returns the batches of the next epoch. Draws every random choice from `generator`.
  virtual EpochPlan PlanEpoch(at::Generator& generator) = 0;

  /// Returns the cases of a batch that a shard of it has. The default cuts them into contiguous
  /// parts of about equal size.
  virtual at::Tensor ShardOfBatch(const at::Tensor& batch, const Shard& shard) const;

  /// Returns the factor of the shard's Loss in the loss of its batch. The default, the shard's part
  /// of the cases, is that of a mean over cases.
  virtual double ShardFactor(const at::Tensor& cases, const at::Tensor& batch) {
    return static_cast<double>(cases.numel()) / static_cast<double>(batch.numel());
  }

  /// Returns the states that a batch passes on to the next one, [streams, ...] each: views of the
  /// model's buffers. Loss changes only the streams of its shard.
  virtual Tensors StreamStates() { return {}; }

  /// Gathers the inputs of Loss for a batch's cases, on the CPU. A run measures the time of this
  /// input pipeline. Gradients are off.
  virtual Tensors Batch(const at::Tensor& cases) = 0;

  /// Returns the mean loss over a batch, to be differentiated. The batch is on the model's device.
  /// The model is in training mode.
  virtual at::Tensor Loss(const Tensors& batch) = 0;

  /// Returns metrics of training and validation. The model is in evaluation mode and gradients are
  /// off.
  virtual Values Evaluate() = 0;

  /// Returns metrics of the test set. Called once, at the end of the run, with the weights of the
  /// evaluation that validation chose (Task::choose_by); otherwise like Evaluate. A task whose
  /// paper draws test curves can return them from Evaluate instead.
  virtual Values Test() { return {}; }

  /// Returns what the last call of Test measured for each item; nullopt in tasks whose test metrics
  /// are not computed from independent items.
  const std::optional<Predictions>& predictions() const { return predictions_; }

  /// Returns what Test does, for the progress: "testing on 7 sentence sets".
  virtual std::string TestPhase() const { return "testing"; }

  /// Returns texts of the trained model for the report; none by default. Called once, like Test.
  /// Draws every random choice from `generator`.
  virtual std::vector<RunResult::Sample> Samples(at::Generator& /*generator*/) { return {}; }

  /// Moves the model to `device`. The engine calls it before the first batch. From then on the
  /// program's convolutions on GPUs compute in float, not TF32.
  void MoveTo(c10::Device device);
  c10::Device device() const { return device_; }

  /// Sets the shard of later calls of Batch and Loss; the whole batch by default.
  void SetShard(const Shard& shard) { shard_ = shard; }

  /// Sets the function that Poll calls; when it returns true, the running evaluation stops.
  void SetStop(std::function<bool()> stop) { stop_ = std::move(stop); }

 protected:
  const Shard& shard() const { return shard_; }

  /// Sets the results of Test for each item.
  void SetPredictions(Predictions predictions) { predictions_ = std::move(predictions); }

  /// Throws EvaluationStopped if the evaluation must stop. Evaluate, Test and Samples call it every
  /// few seconds, so that Ctrl-C takes effect.
  void Poll() const {
    if (stop_ && stop_()) throw EvaluationStopped();
  }

  /// Returns a tensor, or tensors, on the model's device. Evaluate, Test and Samples pass the
  /// model's inputs through it.
  at::Tensor OnDevice(const at::Tensor& t) const { return ToDevice(t, device_); }
  Tensors OnDevice(Tensors tensors) const { return ToDevice(std::move(tensors), device_); }

 private:
  std::function<bool()> stop_;
  c10::Device device_ = c10::kCPU;
  Shard shard_;
  std::optional<Predictions> predictions_;
};

/// Engine metric: the mean training loss of the batches since the last evaluation.
inline constexpr char kTrainLoss[] = "train_loss";

/// Experiment of a paper, before any setting is chosen.
class Task {
 public:
  virtual ~Task() = default;

  std::string name;                   ///< as on the command line
  std::string summary;                ///< one line for `planish list`
  std::vector<SettingSpec> settings;  ///< EngineSettings and the task's own, from the paper
  std::vector<Preset> presets;        ///< the first is the default; small and smoke always exist
  std::vector<MetricSpec> metrics;    ///< of Evaluate, of Test, and kTrainLoss (MetricsOf)
  std::string choose_by;              ///< validation metric that chooses the best evaluation
  ReportSpec report;                  ///< content of the section in the report

  /// Why batches cannot be cut into shards, as a sentence part like "its loss compares all cases of
  /// a batch"; empty if they can.
  std::string why_whole;

  /// Reads the data from `folder`, or creates the embedded default. Throws DataError.
  virtual std::unique_ptr<Dataset> Load(
      const Settings& settings, const std::optional<std::filesystem::path>& folder) const = 0;

  /// Settings that Load depends on. Runs that agree on them share the data.
  std::vector<std::string> data_settings;

  /// Returns the settings that Load gets for a run with this seed. The default returns `settings`:
  /// the data do not depend on the seed. A task that splits its data by the seed changes one of
  /// data_settings.
  virtual Settings LoadSettings(const Settings& settings, int64_t seed) const;

  /// Returns the metrics of a run with these settings. The default returns `metrics`; a task whose
  /// units depend on settings changes the units.
  virtual std::vector<MetricSpec> MetricsOf(const Settings& settings) const;

  /// Throws UsageError if settings do not fit the data, so that a sweep fails before its first run.
  /// The default requires a batch size of at most the training cases.
  virtual void Check(const Settings& settings, const Dataset& data) const;

  /// Returns what the trained model needs of the data to work without it (`planish export`). The
  /// default, nullopt, is for models that are of no use without data.
  virtual std::optional<PackedData> Pack(const Dataset& /*data*/) const { return std::nullopt; }

  /// Returns a Dataset without cases from what Pack returned for a run with these settings. Make
  /// accepts it. Throws std::exception naming a value that Pack cannot have returned.
  virtual std::unique_ptr<Dataset> Unpack(const Settings& settings, const PackedData& packed) const;

  /// Builds the model and its batches. Draws initial weights from the default generator, which the
  /// engine has seeded. Normalization layers draw nothing, so all norms start from the same
  /// weights.
  virtual std::unique_ptr<Experiment> Make(const Settings& settings, const Dataset& data) const = 0;

  /// Returns Make's experiment with the initial weights of a run with this seed. Seeds the default
  /// generator.
  std::unique_ptr<Experiment> MakeSeeded(const Settings& settings, const Dataset& data,
                                         int64_t seed) const;

  /// Returns the optimizer of `parameters`. The default is Adam with the engine's settings.
  virtual std::unique_ptr<Optimizer> MakeOptimizer(const NamedTensors& parameters,
                                                   const Settings& settings) const;

  /// Returns the limit on gradients before each update. The default is ClipTogether with the
  /// setting clip.
  virtual Clipping MakeClipping(const Settings& settings) const;

 protected:
  /// Overrides the default of an engine setting, and its help text unless `help` is empty.
  void Default(std::string_view setting, nlohmann::ordered_json value, std::string help = "");

  /// Appends settings.
  void AddSettings(const std::vector<SettingSpec>& more);

  /// Appends settings that Load depends on.
  void AddDataSettings(const std::vector<SettingSpec>& more);
};

/// Returns the settings that every task has because the engine reads them. `compared`, the setting
/// whose values the task compares (ReportSpec::compare), such as the norm, comes first.
std::vector<SettingSpec> EngineSettings(const SettingSpec& compared);

/// Returns the setting "norm" with these values. A sweep trains all but ablations by default.
SettingSpec NormSetting(const std::vector<std::string>& norms);

/// Returns the settings of the norms: eps, and C and k of AdaNorm.
std::vector<SettingSpec> NormDetails();

/// Returns the setting "eps" of norms, and the setting "gain", the initial gain of all norms.
SettingSpec EpsSetting();
SettingSpec GainSetting();

/// Returns the setting "heads" of recurrent layers with the setting "hidden".
SettingSpec HeadsSetting();

/// Returns the setting "placement" of a Transformer's norms (lab/model/residual.h), and the setting
/// "qk_norm". `more` are placements beside the usual ones.
std::vector<SettingSpec> PlacementSettings(const std::string& value,
                                           const std::vector<std::string>& more = {});

/// Returns the setting "cell" of `layers`, such as "the LSTMs": Planish's kernels ("fused") or
/// PyTorch's operators ("composed").
SettingSpec CellSetting(const std::string& layers);

/// Returns the values of NormDetails' settings.
NormOptions NormOptionsOf(const Settings& settings);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_TASK_H_
