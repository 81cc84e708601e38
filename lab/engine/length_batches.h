#ifndef PLANISH_LAB_ENGINE_LENGTH_BATCHES_H_
#define PLANISH_LAB_ENGINE_LENGTH_BATCHES_H_

#include <ATen/core/Generator.h>

#include <cstdint>
#include <span>

#include "lab/engine/batches.h"

namespace planish::lab {

/// Batches of `batch_size` cases of like length: cases sorted by length with random ties, cut in
/// order, the batches in random order. As many cases as do not fill a batch are left out, others
/// each epoch. Throws UsageError where there are fewer cases than a batch has.
EpochPlan LengthBatches(std::span<const int64_t> lengths, int64_t batch_size,
                        at::Generator& generator);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_LENGTH_BATCHES_H_
