#ifndef PLANISH_LAB_ENGINE_BATCHES_H_
#define PLANISH_LAB_ENGINE_BATCHES_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

// Division of an epoch into batches.
namespace planish::lab {

/// Part of a batch whose loss and gradients are computed separately: number `index` of `count`.
struct Shard {
  int64_t index = 0, count = 1;

  /// Returns the first of `n` elements that the shard has; that of the next shard ends it.
  int64_t Begin(int64_t n) const { return n * index / count; }
  int64_t End(int64_t n) const { return n * (index + 1) / count; }
};

/// Batches of one epoch: batch b is the cases order[offsets[b]] .. order[offsets[b + 1] - 1].
struct EpochPlan {
  at::Tensor order;              ///< int64 case numbers
  std::vector<int64_t> offsets;  ///< batches + 1 positions in `order`

  int64_t batches() const { return static_cast<int64_t>(offsets.size()) - 1; }
  /// Returns the case numbers of batch `b`: a view into `order`.
  at::Tensor batch(int64_t b) const;
};

/// Returns all `cases` in random order, cut into batches of `batch_size`.
/// Cases that do not fill a last batch are left out (others each epoch), so every update averages
/// over the same number of cases. Throws UsageError if there are fewer cases than one batch.
EpochPlan ShuffledBatches(int64_t cases, int64_t batch_size, at::Generator& generator);

/// Returns batches of cases with similar lengths: sorted by length with random ties, cut, and put
/// in random order. Includes every case once.
/// In each batch the number of cases times the longest length (its size when padded) is at most
/// `max_tokens`. Throws UsageError if a single case is longer than that.
EpochPlan TokenBatches(std::span<const int64_t> lengths, int64_t max_tokens,
                       at::Generator& generator);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_BATCHES_H_
