#include "lab/tasks/char-lm/streams.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>

#include "lab/error.h"

namespace planish::lab {

void CheckStreams(int64_t characters, int64_t streams, int64_t steps) {
  const int64_t least = steps * (streams + 1);
  if (characters < least) {
    throw UsageError(fmt::format(
        "[char-lm] the training text must have at least (batch_size + 1) * steps = {} characters "
        "but has {}",
        least, characters));
  }
}

EpochPlan StreamedBatches(int64_t characters, int64_t streams, int64_t steps,
                          at::Generator& generator) {
  CheckStreams(characters, streams, steps);
  // The last case of the last stream is at most character steps - 1 + streams * batches * steps -
  // 1, and the one it predicts must be there.
  const int64_t batches = (characters - steps) / (streams * steps);
  const int64_t begin = at::randint(steps, {}, generator, at::kLong).item<int64_t>();
  EpochPlan plan;
  plan.order = at::arange(begin, begin + streams * batches * steps, at::kLong)
                   .view({streams, batches, steps})
                   .permute({1, 2, 0})
                   .flatten();
  for (int64_t batch = 0; batch <= batches; ++batch) {
    plan.offsets.push_back(batch * streams * steps);
  }
  return plan;
}

}  // namespace planish::lab
