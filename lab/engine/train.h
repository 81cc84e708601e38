#ifndef PLANISH_LAB_ENGINE_TRAIN_H_
#define PLANISH_LAB_ENGINE_TRAIN_H_

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "lab/engine/adam.h"
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
  /// Seconds of training between two checkpoints. There is always one at the end, and on a stop.
  double checkpoint_seconds = 60;
  /// Where the data was read, for those who open the trained model later; empty when it was not.
  std::string data;
  /// Asked after each update; true saves and ends the call.
  std::function<bool()> stop = [] { return false; };
  /// Asked during evaluations; true saves and ends the call. The evaluation is then repeated.
  std::function<bool()> stop_evaluation = [] { return false; };
};

enum class Outcome {
  kFinished,     ///< trained to the end
  kDiverged,     ///< ended by a loss or metric that is not finite; result.json says so
  kSkipped,      ///< had already ended in an earlier call
  kInterrupted,  ///< stopped and saved: the same call continues it
};

/// Trains one run in its folder, or goes on with it where an earlier call stopped: then every
/// weight and metric ends with the bits of an uninterrupted run (on as many threads). Throws
/// RunError when the folder holds another run (the message has the differences) or cannot be
/// written.
Outcome Train(const Task& task, const Dataset& data, const RunPlan& plan,
              const std::map<std::string, std::string>& stamps, const TrainOptions& options,
              Progress& progress);

/// The optimiser of `model`'s parameters that the settings ask for.
Adam MakeAdam(const torch::nn::Module& model, const Settings& settings);

/// What an update of the weights left.
struct Update {
  double loss = 0;           ///< mean over the batches; when not finite, the weights are as before
  double input_seconds = 0;  ///< spent in Experiment::Batch
};

/// How gradients are scaled before an update. A limit of 0: not at all.
struct Clipping {
  double norm = 0;  ///< of all together, the largest (Pascanu et al. 2013, algorithm 1)
  double each = 0;  ///< of each parameter's for itself, the largest; comes first
  /// As the code of the attentive reader has `norm`, which takes the root where it means the
  /// square: a norm n above norm^2 becomes norm * sqrt(n), others stay as they are.
  bool theano = false;
};

/// What the settings clip, clip_each and compat say; a task need not have the last two.
Clipping ClippingOf(const Settings& settings);

/// One update of the weights from the cases of some batches: forward, backward and Adam's step on
/// the mean of the batches' gradients, once they are clipped.
Update UpdateWeights(Experiment& experiment, Adam& adam, std::span<const at::Tensor> batches,
                     const Clipping& clipping = {});

/// What decides the run, with what the report needs to know of it: config.json.
RunConfig MakeConfig(const Task& task, const Dataset& data, const RunPlan& plan,
                     const std::map<std::string, std::string>& stamps);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_TRAIN_H_
