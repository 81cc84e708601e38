#ifndef PLANISH_LAB_ENGINE_LENGTH_BATCHES_H_
#define PLANISH_LAB_ENGINE_LENGTH_BATCHES_H_

#include <ATen/core/Generator.h>

#include <cstdint>
#include <span>

#include "lab/engine/batches.h"

namespace planish::lab {

/// Returns batches of `batch_size` cases with similar lengths: sorted by length with random ties,
/// cut in order, and put in random order.
/// Cases that do not fill a batch are left out, others each epoch. Throws UsageError if there are
/// fewer cases than one batch.
EpochPlan LengthBatches(std::span<const int64_t> lengths, int64_t batch_size,
                        at::Generator& generator);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_LENGTH_BATCHES_H_
