#ifndef PLANISH_LAB_ENGINE_SHARDS_H_
#define PLANISH_LAB_ENGINE_SHARDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "lab/engine/gradient_buckets.h"
#include "lab/engine/optimizer.h"
#include "lab/engine/processes.h"
#include "lab/engine/task.h"
#include "lab/engine/train.h"
#include "lab/model/batch_statistics.h"
#include "lab/model/norms.h"

namespace planish::lab {

/// Updates of a run whose batches are cut into shards. Each process computes its part of the
/// shards.
///
/// A shard has its own random numbers, which depend on seed, update and shard only, and its own
/// batch statistics. Gradients, losses and the buffers of the model are added over the shards as a
/// binary tree, in the order of Processes::Sum. If the number of shards is a power of two, results
/// have the same bits with any power of two of processes up to that number. The all-reduce of the
/// gradients overlaps the backward pass of each process's last shard.
class ShardedUpdates {
 public:
  /// `shards` must be a multiple of the number of processes.
  ShardedUpdates(Experiment& experiment, Processes& processes, int64_t shards, int64_t seed);

  /// Makes batch norm compute its statistics over all shards of a batch in later updates. Needs one
  /// shard for each process.
  void SynchronizeStatistics();

  /// Like UpdateWeights, in all processes together. Adds `signals`, a CPU tensor of doubles, over
  /// the processes. Without finite loss the weights are unchanged in every process. Records the
  /// gradients around `norms` in Update::norm_sums.
  Update Run(int64_t step, Optimizer& optimizer, std::span<const at::Tensor> batches,
             const Clipping& clipping, at::Tensor& signals,
             std::span<NormModule* const> norms = {});

  /// Completes the states that batches pass on (Experiment::StreamStates): every process has then
  /// those of all shards. Before a checkpoint.
  void CompleteStreams();

 private:
  struct Sums;
  struct Place {
    int64_t step, batch, shard;
  };

  // Adds to the update's input_seconds, and sets its origin if the loss is not finite. `earlier`,
  // if not null, are sums over the earlier shards of this process. The parameters' gradients are
  // then the sums over all shards of all processes.
  Sums RunShard(const Place& place, const at::Tensor& batch, double batches, Update& update,
                const std::vector<Sums>* earlier, std::span<NormModule* const> norms);

  // Computes the loss of `inputs`, with synchronized statistics after SynchronizeStatistics, calls
  // `backward` with it, and returns it.
  double LossAndGradients(const Tensors& inputs, double factor,
                          const std::function<void(const at::Tensor&)>& backward);

  // Returns true if the last shard of each process has cases.
  bool LastShardsHaveCases(const at::Tensor& batch) const;

  // Returns the gradients of the parameters, and clears them.
  Tensors TakeGradients();

  // Splits `flat`, the concatenated gradients of all parameters, into one tensor for each.
  Tensors GradientsOf(const at::Tensor& flat);

  // Sets the model's buffers from the sums of an update that recorded `norms` norms.
  void TakeBuffers(const Sums& sums, size_t norms);

  Experiment& experiment_;
  Processes& processes_;
  int64_t shards_;
  int64_t seed_;
  int64_t first_, end_;                       // of the shards of this process
  std::vector<BatchStatistics*> statistics_;  // modules with synchronized statistics
  std::optional<GradientBuckets> buckets_;    // if there are several processes
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_SHARDS_H_
