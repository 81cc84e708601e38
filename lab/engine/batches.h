#ifndef PLANISH_LAB_ENGINE_BATCHES_H_
#define PLANISH_LAB_ENGINE_BATCHES_H_

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

// How an epoch is cut into batches.
namespace planish::lab {

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
/// many cases. Throws UsageError where there are fewer cases than that.
EpochPlan ShuffledBatches(int64_t cases, int64_t batch_size, at::Generator& generator);

/// All cases, those of like length together: sorted by length with random ties, cut into batches of
/// which number of cases times longest length is at most `max_tokens` (what they take when padded),
/// the batches in random order. Every case is there once. Throws UsageError where a case alone is
/// longer than that.
EpochPlan TokenBatches(std::span<const int64_t> lengths, int64_t max_tokens,
                       at::Generator& generator);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_BATCHES_H_
