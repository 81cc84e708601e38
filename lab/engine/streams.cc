#include "lab/engine/streams.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>

#include "lab/error.h"

namespace planish::lab {

void CheckStreams(int64_t characters, int64_t streams, int64_t window,
                  std::string_view window_name) {
  const int64_t min_characters = window * (streams + 1);
  if (characters < min_characters) {
    throw UsageError(fmt::format(
        "[streams] the training text must have at least (batch_size + 1) * {} = {} characters, got "
        "{}",
        window_name, min_characters, characters));
  }
}

at::Tensor ShardOfStreams(const at::Tensor& batch, int64_t streams, const Shard& shard) {
  return batch.view({-1, streams}).slice(1, shard.Begin(streams), shard.End(streams)).flatten();
}

EpochPlan StreamedBatches(int64_t characters, int64_t streams, int64_t window,
                          at::Generator& generator) {
  CheckStreams(characters, streams, window);
  // The last case is at most character (window - 1) + (streams * batches * window - 1); its
  // prediction is the next character, which must exist.
  const int64_t batches = (characters - window) / (streams * window);
  const int64_t begin = at::randint(window, {}, generator, at::kLong).item<int64_t>();
  EpochPlan plan;
  plan.order = at::arange(begin, begin + streams * batches * window, at::kLong)
                   .view({streams, batches, window})
                   .permute({1, 2, 0})
                   .flatten();
  for (int64_t batch = 0; batch <= batches; ++batch) {
    plan.offsets.push_back(batch * streams * window);
  }
  return plan;
}

}  // namespace planish::lab
