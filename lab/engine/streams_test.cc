#include "lab/engine/streams.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> Cases(const EpochPlan& plan, int64_t batch) {
  const at::Tensor cases = plan.batch(batch).contiguous();
  return {cases.const_data_ptr<int64_t>(), cases.const_data_ptr<int64_t>() + cases.numel()};
}

EpochPlan Plan(int64_t characters, int64_t streams, int64_t window, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return StreamedBatches(characters, streams, window, generator);
}

// 24 characters, 3 streams, a window of 2: (24 - 2) / 6 = 3 batches. Streams of 6 begin at b, b + 6
// and b + 12, where b is drawn from {0, 1}.
TEST(StreamedBatches, ReadsStreamsSideBySide) {
  std::set<int64_t> begins;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const EpochPlan plan = Plan(24, 3, 2, seed);
    ASSERT_EQ(plan.batches(), 3);
    const int64_t b = plan.order[0].item<int64_t>();
    begins.insert(b);
    EXPECT_THAT(Cases(plan, 0), ElementsAre(b, b + 6, b + 12, b + 1, b + 7, b + 13));
    EXPECT_THAT(Cases(plan, 1), ElementsAre(b + 2, b + 8, b + 14, b + 3, b + 9, b + 15));
    EXPECT_THAT(Cases(plan, 2), ElementsAre(b + 4, b + 10, b + 16, b + 5, b + 11, b + 17));
  }
  EXPECT_THAT(begins, ElementsAre(0, 1));
}

TEST(StreamedBatches, StayWithinTheText) {
  for (int64_t characters = 12; characters < 40; ++characters) {
    const EpochPlan plan = Plan(characters, 3, 3, static_cast<uint64_t>(characters));
    // Batches of 9, after up to 2 characters, and one extra character for the last prediction.
    EXPECT_EQ(plan.batches(), (characters - 3) / 9);
    EXPECT_LE(plan.order.max().item<int64_t>() + 1, characters - 1);
    EXPECT_EQ(plan.order.numel(), plan.offsets.back());
  }
}

TEST(StreamedBatches, RefusesATextThatIsTooShort) {
  EXPECT_EQ(Plan(12, 3, 3, 1).batches(), 1);
  try {
    Plan(11, 3, 3, 1);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("at least (batch_size + 1) * window = 12 characters, got 11"));
  }
}

}  // namespace
}  // namespace planish::lab
