#ifndef PLANISH_LAB_ENGINE_TRAIN_H_
#define PLANISH_LAB_ENGINE_TRAIN_H_

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "lab/engine/optimizer.h"
#include "lab/engine/processes.h"
#include "lab/engine/task.h"
#include "lab/run/results.h"
#include "lab/terminal/progress.h"

namespace planish::lab {

/// One run of a sweep.
struct RunPlan {
  Settings settings;
  std::string preset;
  int64_t seed = 1;
  std::filesystem::path folder;
};

struct TrainOptions {
  c10::Device device = c10::kCPU;  ///< where the model is trained and evaluated
  Processes* processes = nullptr;  ///< that train the run together; null: this one alone
  /// Maximum seconds of training between two checkpoints. A stop and the end always write one.
  double checkpoint_seconds = 60;
  /// Where the data was read, for commands that open the trained model later; empty if nothing was
  /// read.
  std::string data;
  /// Called after each update; true saves and returns.
  std::function<bool()> stop = [] { return false; };
  /// Called during evaluations; true saves and returns. The next call repeats the evaluation.
  std::function<bool()> stop_evaluation = [] { return false; };
};

enum class Outcome {
  kFinished,     ///< trained to the end
  kDiverged,     ///< ended by a loss or metric that is not finite; recorded in result.json
  kSkipped,      ///< had already ended in an earlier call
  kInterrupted,  ///< stopped and saved; calling Train again continues it
};

/// Trains one run in its folder, or continues it where an earlier call stopped. With the same
/// device and number of threads, every weight and metric then has the bits of an uninterrupted run.
/// Throws RunError if the folder holds another run (the message lists the differences) or cannot be
/// written.
///
/// Several processes must call it with the same arguments. The first one writes the files, the
/// others read its checkpoint. A stop of one stops all after the update.
Outcome Train(const Task& task, const Dataset& data, const RunPlan& plan,
              const std::map<std::string, std::string>& stamps, const TrainOptions& options,
              Progress& progress);

/// Returns true if the run of the folder is new or has not ended. Throws RunError if the folder has
/// another run than that of `config`.
bool IsToTrain(const RunPlan& plan, const RunConfig& config);

/// Returns a generator for the order of one epoch. It depends only on seed and epoch, so
/// checkpoints do not store it and it is the same for every norm.
at::Generator OrderGenerator(int64_t seed, int64_t epoch);

/// Result of a weight update.
struct Update {
  double loss = 0;           ///< mean over the batches; if not finite, the weights are unchanged
  double input_seconds = 0;  ///< time spent in Experiment::Batch
  /// Where a loss that is not finite comes from (FindNonFiniteLayer); else empty.
  std::string origin;
  /// NormModule::WatchedSums, a row for each recorded norm; undefined if none was recorded.
  at::Tensor norm_sums;
};

/// Updates the weights once: forward and backward for each batch, then clipping and the optimizer's
/// step on the mean of the batches' gradients.
Update UpdateWeights(Experiment& experiment, Optimizer& optimizer,
                     std::span<const at::Tensor> batches, const Clipping& clipping = {});

/// Returns the settings of a run as config.json stores them.
nlohmann::ordered_json StoredSettings(const Settings& settings);

/// Returns the content of config.json: everything that determines the run, and what the report
/// needs.
RunConfig MakeConfig(const Task& task, const Dataset& data, const RunPlan& plan,
                     const std::map<std::string, std::string>& stamps);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_TRAIN_H_
