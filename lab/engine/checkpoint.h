#ifndef PLANISH_LAB_ENGINE_CHECKPOINT_H_
#define PLANISH_LAB_ENGINE_CHECKPOINT_H_

#include <torch/nn/module.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/engine/optimizer.h"
#include "lab/run/results.h"

namespace planish::lab {

/// State of a training run beside its weights: everything that the next update depends on.
struct TrainingState {
  int64_t step = 0;
  int64_t epoch = 0;          ///< epochs completed
  int64_t batch = 0;          ///< batches completed in the current epoch
  double epoch_fraction = 0;  ///< epochs completed, with the fraction of the current one
  int64_t cases = 0;          ///< training cases seen
  double seconds = 0;         ///< training time
  double input_seconds = 0;   ///< part of `seconds` spent gathering batches
  std::optional<double> cpu_seconds = 0;  ///< CPU time of `seconds`; absent if it is not measured
  double evaluation_seconds = 0;
  double loss_sum = 0;     ///< sum over the batches since the last evaluation
  int64_t loss_count = 0;  ///< batches since the last evaluation
  std::optional<RunResult::Best> best;
  NamedTensors best_weights;    ///< parameters and buffers at `best`: copies
  Evaluation last;              ///< the latest evaluation
  bool evaluation_due = false;  ///< set if the evaluation after `step` updates was interrupted
  std::vector<NormGradients> gradients;  ///< of the latest update, for the next evaluation
  std::string threads;         ///< number of threads of the process that made the checkpoint
  std::string device = "cpu";  ///< device on which that process trained
  std::string data;  ///< where the data was read, for `planish sample`; empty if nothing was read
};

/// Returns the parameters, then the buffers, sharing memory with the model.
NamedTensors WeightsOf(const torch::nn::Module& model);

/// Writes weights, buffers, optimizer, the default generator and `state` to one safetensors file
/// with a checksum. Replaces an older file only when the new one is on disk. Creates the file's
/// folder, but not the folder's parent. Throws RunError.
void SaveCheckpoint(const std::filesystem::path& file, const torch::nn::Module& model,
                    const Optimizer& optimizer, const TrainingState& state);

/// Reads a file of SaveCheckpoint into `model`, `optimizer` and the default generator.
/// Throws RunError naming the value if the file is damaged, belongs to another model, or has no
/// `best` or impossible counters.
TrainingState LoadCheckpoint(const std::filesystem::path& file, torch::nn::Module& model,
                             Optimizer& optimizer);

/// Reads only the weights of the best evaluation into `model`. Throws RunError like LoadCheckpoint.
void LoadBestWeights(const std::filesystem::path& file, torch::nn::Module& model);

/// What is known of a checkpoint without its model.
struct CheckpointSummary {
  std::string data;      ///< TrainingState::data
  int64_t elements = 0;  ///< of the weights and buffers of the model
};

/// Returns the summary of a checkpoint. Throws RunError like LoadCheckpoint.
CheckpointSummary SummarizeCheckpoint(const std::filesystem::path& file);

/// Returns the path of the checkpoint in the run folder `run`.
std::filesystem::path CheckpointFile(const std::filesystem::path& run);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_CHECKPOINT_H_
