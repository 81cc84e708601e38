#include "lab/engine/allocation_limit.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <optional>

namespace planish::lab {
namespace {

constexpr int64_t kMega = int64_t{1} << 20;

TEST(AllocationLimit, RefusesOnlyWhatIsBeyondIt) {
  std::optional<AllocationLimit> limit(kMega);
  const at::Tensor half = at::zeros({kMega / 8});  // of floats
  EXPECT_EQ(limit->used(), kMega / 2);
  EXPECT_THROW(at::zeros({kMega / 8 + 1}), AllocationLimitExceeded);
  EXPECT_EQ(limit->used(), kMega / 2);
  // Far more memory than any machine has.
  EXPECT_THROW(at::zeros({kMega, kMega, kMega}), AllocationLimitExceeded);
  {
    const at::Tensor freed = at::empty({kMega / 8});
  }
  EXPECT_EQ(limit->used(), kMega);
  EXPECT_THROW(at::empty({1}), AllocationLimitExceeded);
  limit.reset();
  EXPECT_EQ(at::ones({kMega}).sum().item<double>(), kMega);
  EXPECT_EQ(half.sum().item<double>(), 0);
}

TEST(AllocationLimit, CountsCopiesAndGrowth) {
  const at::Tensor before = at::ones({100});
  AllocationLimit limit(kMega);
  at::Tensor copy = before.clone();
  EXPECT_EQ(limit.used(), 400);
  copy.resize_({1000});
  EXPECT_EQ(limit.used(), 4400);
  EXPECT_EQ(copy.slice(0, 0, 100).sum().item<double>(), 100);
}

}  // namespace
}  // namespace planish::lab
