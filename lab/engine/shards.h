#ifndef PLANISH_LAB_ENGINE_SHARDS_H_
#define PLANISH_LAB_ENGINE_SHARDS_H_

#include <cstdint>
#include <span>

#include "lab/engine/optimizer.h"
#include "lab/engine/processes.h"
#include "lab/engine/task.h"
#include "lab/engine/train.h"

namespace planish::lab {

/// Updates of a run whose batches are cut into shards. Each process computes its part of the
/// shards.
///
/// A shard has its own random numbers, which depend on seed, update and shard only, and its own
/// batch statistics. Gradients, losses and the buffers of the model are added over the shards as a
/// binary tree, in the order of Processes::Sum. If the number of shards is a power of two, results
/// have the same bits for each power of two of processes up to it.
class ShardedUpdates {
 public:
  /// `shards` must be a multiple of the number of processes.
  ShardedUpdates(Experiment& experiment, Processes& processes, int64_t shards, int64_t seed);

  /// Like UpdateWeights, in all processes together. Adds `signals`, a CPU tensor of doubles, over
  /// the processes. Without finite loss the weights are unchanged in every process.
  Update Run(int64_t step, Optimizer& optimizer, std::span<const at::Tensor> batches,
             const Clipping& clipping, at::Tensor& signals);

  /// Completes the states that batches pass on (Experiment::StreamStates): every process has then
  /// those of all shards. Before a checkpoint.
  void CompleteStreams();

 private:
  struct Sums;
  struct Place {
    int64_t step, batch, shard;
  };

  // Adds to the update's input_seconds, and sets its origin if the loss is not finite.
  Sums RunShard(const Place& place, const at::Tensor& batch, double batches, Update& update);

  // Sets the model's buffers from sums. Returns the number of gradients before them in `values`.
  int64_t TakeBuffers(const at::Tensor& values, const at::Tensor& doubles);

  Experiment& experiment_;
  Processes& processes_;
  int64_t shards_;
  int64_t seed_;
  int64_t first_, end_;  // of the shards of this process
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_SHARDS_H_
