#ifndef PLANISH_LAB_ENGINE_CHECKPOINT_H_
#define PLANISH_LAB_ENGINE_CHECKPOINT_H_

#include <torch/nn/module.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/engine/adam.h"
#include "lab/run/results.h"

namespace planish::lab {

/// Where a run stands, beside its weights: all that the next update depends on.
struct TrainingState {
  int64_t step = 0;
  int64_t epoch = 0;          ///< epochs completed
  int64_t batch = 0;          ///< batches done of the current epoch
  double epoch_fraction = 0;  ///< both as one number
  int64_t cases = 0;          ///< training cases seen
  double seconds = 0;         ///< spent training
  double input_seconds = 0;   ///< of these, gathering batches
  double evaluation_seconds = 0;
  double loss_sum = 0;     ///< of the batches since the last evaluation
  int64_t loss_count = 0;  ///< batches since the last evaluation
  std::optional<RunResult::Best> best;
  NamedTensors best_weights;             ///< parameters and buffers at `best`, copied
  Evaluation last;                       ///< the latest evaluation
  bool evaluation_due = false;           ///< the evaluation after `step` updates was interrupted
  std::vector<NormGradients> gradients;  ///< in the latest update, for the evaluation after it
  std::string threads;                   ///< threads that made the checkpoint
  std::string data;  ///< where the data was read, empty when it was not: for `planish sample`
};

/// Parameters, then buffers, sharing memory with the model.
NamedTensors WeightsOf(const torch::nn::Module& model);

/// Writes weights, buffers, optimiser, the default generator and `state` to one safetensors file
/// with a checksum, replacing an older one only when the new one is on disk. Makes the file's own
/// folder, but not that folder's parent. Throws RunError.
void SaveCheckpoint(const std::filesystem::path& file, const torch::nn::Module& model,
                    const Adam& adam, const TrainingState& state);

/// Reads what SaveCheckpoint wrote into `model`, `adam` and the default generator. Throws RunError
/// that names the value when the file is damaged, belongs to another model, or holds a state in
/// which no training can have been interrupted: without `best`, counters below 0 or against each
/// other.
TrainingState LoadCheckpoint(const std::filesystem::path& file, torch::nn::Module& model,
                             Adam& adam);

/// Reads the weights of the best evaluation, and nothing else, into `model`. Throws RunError as
/// LoadCheckpoint.
void LoadBestWeights(const std::filesystem::path& file, torch::nn::Module& model);

/// TrainingState::data of a checkpoint. Throws RunError as LoadCheckpoint.
std::string CheckpointData(const std::filesystem::path& file);

/// The file of a run that SaveCheckpoint writes.
std::filesystem::path CheckpointFile(const std::filesystem::path& run);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_CHECKPOINT_H_
