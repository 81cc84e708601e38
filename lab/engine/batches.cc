#include "lab/engine/batches.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/randperm.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lab/error.h"

namespace planish::lab {

namespace {

std::vector<int64_t> RandomOrder(int64_t count, at::Generator& generator) {
  const at::Tensor order = at::randperm(count, generator, at::kLong);
  const auto* begin = order.const_data_ptr<int64_t>();
  return {begin, begin + count};
}

}  // namespace

at::Tensor EpochPlan::batch(int64_t b) const {
  const auto i = static_cast<size_t>(b);
  return order.slice(0, offsets[i], offsets[i + 1]);
}

EpochPlan ShuffledBatches(int64_t cases, int64_t batch_size, at::Generator& generator) {
  if (batch_size > cases) {
    throw UsageError(fmt::format(
        "[engine] batch_size must be at most the {} training cases, got {}", cases, batch_size));
  }
  EpochPlan plan;
  plan.order = at::randperm(cases, generator, at::kLong);
  for (int64_t end = 0; end <= cases; end += batch_size) plan.offsets.push_back(end);
  return plan;
}

EpochPlan TokenBatches(std::span<const int64_t> lengths, int64_t max_tokens,
                       at::Generator& generator) {
  const auto cases = static_cast<int64_t>(lengths.size());
  const auto length = [&](int64_t i) { return lengths[static_cast<size_t>(i)]; };
  std::vector<int64_t> sorted = RandomOrder(cases, generator);
  std::ranges::stable_sort(sorted, {}, length);
  if (cases > 0 && length(sorted.back()) > max_tokens) {
    throw UsageError(fmt::format(
        "[engine] batch_size must be at least the {} tokens of the longest case, got {}",
        length(sorted.back()), max_tokens));
  }
  std::vector<std::pair<int64_t, int64_t>> batches;  // begin and end in `sorted`
  for (int64_t begin = 0, end = 0; begin < cases; begin = end) {
    // The next case is the longest so far.
    while (end < cases &&
           (end + 1 - begin) * length(sorted[static_cast<size_t>(end)]) <= max_tokens)
      ++end;
    batches.emplace_back(begin, end);
  }
  EpochPlan plan;
  plan.offsets.push_back(0);
  std::vector<int64_t> order;
  order.reserve(sorted.size());
  for (const int64_t b : RandomOrder(static_cast<int64_t>(batches.size()), generator)) {
    const auto [begin, end] = batches[static_cast<size_t>(b)];
    order.insert(order.end(), sorted.begin() + begin, sorted.begin() + end);
    plan.offsets.push_back(static_cast<int64_t>(order.size()));
  }
  plan.order = at::from_blob(order.data(), {cases}, at::kLong).clone();
  return plan;
}

}  // namespace planish::lab
