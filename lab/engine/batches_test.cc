#include "lab/engine/batches.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> Cases(const at::Tensor& t) {
  return {t.const_data_ptr<int64_t>(), t.const_data_ptr<int64_t>() + t.numel()};
}

TEST(ShuffledBatches, HasEachCaseOnceAndLeavesOutTheRemainder) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const EpochPlan plan = ShuffledBatches(43, 5, generator);
  EXPECT_EQ(plan.batches(), 8);
  std::set<int64_t> seen;
  for (int64_t b = 0; b < plan.batches(); ++b) {
    const auto cases = Cases(plan.batch(b));
    EXPECT_EQ(cases.size(), 5u);
    seen.insert(cases.begin(), cases.end());
  }
  EXPECT_EQ(seen.size(), 40u);
  EXPECT_THROW(ShuffledBatches(4, 5, generator), UsageError);
}

TEST(TokenBatches, HasEachCaseOnceWithinTheTokens) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 101; ++i) lengths.push_back(1 + i * i % 23);
  const EpochPlan plan = TokenBatches(lengths, 40, generator);
  EXPECT_EQ(plan.order.numel(), 101);
  auto all = Cases(plan.order);
  std::ranges::sort(all);
  for (int64_t i = 0; i < 101; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
  int64_t full = 0;
  for (int64_t b = 0; b < plan.batches(); ++b) {
    int64_t longest = 0, shortest = 99;
    const auto cases = Cases(plan.batch(b));
    ASSERT_FALSE(cases.empty());
    for (const int64_t c : cases) {
      longest = std::max(longest, lengths[static_cast<size_t>(c)]);
      shortest = std::min(shortest, lengths[static_cast<size_t>(c)]);
    }
    const int64_t tokens = longest * static_cast<int64_t>(cases.size());
    EXPECT_LE(tokens, 40);
    EXPECT_LE(longest - shortest, 10) << "cases of one batch are of like length";
    full += tokens > 20;
  }
  EXPECT_GT(full, plan.batches() / 2);
}

TEST(TokenBatches, DrawsTiesAndOrderAnew) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  const std::vector<int64_t> lengths(32, 3);
  const EpochPlan a = TokenBatches(lengths, 12, generator),
                  b = TokenBatches(lengths, 12, generator);
  EXPECT_EQ(a.batches(), 8);
  EXPECT_FALSE(a.order.equal(b.order));
  at::Generator again = at::detail::createCPUGenerator(1);
  EXPECT_TRUE(TokenBatches(lengths, 12, again).order.equal(a.order));
}

TEST(TokenBatches, AcceptsACaseThatFillsABatchAndRefusesALongerOne) {
  at::Generator generator = at::detail::createCPUGenerator(1);
  EXPECT_EQ(TokenBatches(std::vector<int64_t>{7, 7}, 7, generator).batches(), 2);
  EXPECT_THROW(TokenBatches(std::vector<int64_t>{1, 8}, 7, generator), UsageError);
  EXPECT_EQ(TokenBatches({}, 7, generator).batches(), 0);
}

}  // namespace
}  // namespace planish::lab
