#include "lab/engine/length_batches.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <tuple>

namespace planish::lab {

EpochPlan LengthBatches(std::span<const int64_t> lengths, int64_t batch_size,
                        at::Generator& generator) {
  const auto cases = static_cast<int64_t>(lengths.size());
  // Drops the remainder and shuffles the rest, which makes ties random.
  const EpochPlan shuffled = ShuffledBatches(cases, batch_size, generator);
  const int64_t batches = shuffled.batches();
  const at::Tensor kept = shuffled.order.slice(0, 0, batches * batch_size);
  const at::Tensor all = at::empty({cases}, at::kLong);
  std::copy(lengths.begin(), lengths.end(), all.mutable_data_ptr<int64_t>());
  const at::Tensor by_length =
      std::get<1>(all.index_select(0, kept).sort(/*stable=*/true, /*dim=*/0, /*descending=*/false));
  const at::Tensor order = at::randperm(batches, generator, at::kLong);
  EpochPlan plan;
  plan.order =
      kept.index_select(0, by_length).view({batches, batch_size}).index_select(0, order).flatten();
  plan.offsets = shuffled.offsets;
  return plan;
}

}  // namespace planish::lab
