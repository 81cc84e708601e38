#include "lab/engine/length_batches.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lab/error.h"

namespace planish::lab {
namespace {

std::vector<int64_t> Cases(const at::Tensor& t) {
  return {t.const_data_ptr<int64_t>(), t.const_data_ptr<int64_t>() + t.numel()};
}

TEST(LengthBatches, FillsEveryBatchWithCasesOfLikeLength) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 103; ++i) lengths.push_back(1 + i * i % 23);
  const EpochPlan plan = LengthBatches(lengths, 10, generator);
  EXPECT_EQ(plan.batches(), 10);
  auto all = Cases(plan.order);
  EXPECT_EQ(all.size(), 100u);
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end()) << "a case is there twice";
  // In the order of lengths, batches do not overlap.
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t b = 0; b < plan.batches(); ++b) {
    const auto cases = Cases(plan.batch(b));
    ASSERT_EQ(cases.size(), 10u);
    const auto [shortest, longest] =
        std::ranges::minmax(cases, {}, [&](int64_t c) { return lengths[static_cast<size_t>(c)]; });
    ranges.emplace_back(lengths[static_cast<size_t>(shortest)],
                        lengths[static_cast<size_t>(longest)]);
  }
  EXPECT_FALSE(std::ranges::is_sorted(ranges)) << "batches come in random order";
  std::ranges::sort(ranges);
  for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);
  // The next epoch leaves out another three.
  auto next = Cases(LengthBatches(lengths, 10, generator).order);
  std::ranges::sort(next);
  EXPECT_NE(all, next);
  EXPECT_THROW(LengthBatches(lengths, 104, generator), UsageError);
}

}  // namespace
}  // namespace planish::lab
