#include "src/norm/cuda/columns_plan.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace planish::internal::cuda {
namespace {

std::string Text(const ColumnsShape& shape) {
  return std::to_string(shape.batch) + " x " + std::to_string(shape.channels) + " x " +
         std::to_string(shape.spatial) + ", packs of " + std::to_string(shape.pack) +
         (shape.independent_of_channel_count ? ", independent_of_channel_count" : "");
}

// Shapes near every limit, to 2^33 in each size and 2^40 elements.
std::vector<ColumnsShape> Shapes() {
  const int64_t sizes[] = {1,
                           2,
                           3,
                           7,
                           8,
                           16,
                           31,
                           32,
                           33,
                           63,
                           64,
                           65,
                           255,
                           256,
                           257,
                           511,
                           512,
                           528,
                           529,
                           1024,
                           2047,
                           2048,
                           2056,
                           8191,
                           8192,
                           16384,
                           16385,
                           65536,
                           1 << 20,
                           (1 << 24) + 1,
                           int64_t{1} << 31,
                           int64_t{1} << 33};
  std::vector<ColumnsShape> shapes;
  for (const int64_t batch : sizes) {
    for (const int64_t channels : sizes) {
      if (batch > (int64_t{1} << 40) / channels) continue;
      for (const int64_t spatial : sizes) {
        if (spatial > (int64_t{1} << 40) / (batch * channels)) continue;
        for (const int pack : {1, 2, 4, 8}) {
          if ((AreColumns(batch, spatial) ? channels * spatial : spatial) % pack != 0) continue;
          for (const bool independent_of_channel_count : {false, true}) {
            shapes.push_back({batch, channels, spatial, pack, independent_of_channel_count});
          }
        }
      }
    }
  }
  return shapes;
}

TEST(CudaColumnsPlan, FitsTheShape) {
  for (const ColumnsShape& shape : Shapes()) {
    SCOPED_TRACE(Text(shape));
    const ColumnsPlan plan = PlanColumns(shape);
    ASSERT_EQ(plan.columns, shape.batch > 1 && shape.spatial < 64);
    ASSERT_EQ(plan.pack, shape.pack);
    ASSERT_EQ(plan.launch.threads, kColumnsThreads);
    ASSERT_GE(plan.launch.blocks, 1);
    ASSERT_LE(plan.launch.blocks, kMaxBlocks);
    ASSERT_TRUE(std::has_single_bit(static_cast<unsigned>(plan.team)));
    ASSERT_TRUE(plan.team <= kWarpThreads || (!plan.columns && plan.team == kColumnsThreads));
    // Parts are consecutive, cover all elements or samples, and are not empty.
    const int64_t all = plan.columns ? shape.batch : shape.batch * shape.spatial;
    ASSERT_GE(plan.parts, 1);
    ASSERT_GE(plan.part * plan.parts, all);
    ASSERT_LT(plan.part * (plan.parts - 1), all);
    if (!plan.columns) {
      ASSERT_EQ(plan.part % 8, 0) << "packs are not cut";
    }
    if (plan.team <= kWarpThreads && !plan.columns) {
      ASSERT_EQ(plan.parts, 1);
      ASSERT_LE(all, int64_t{64} * plan.team) << "numbers one thread adds up";
    }
    ASSERT_EQ(plan.pairs, plan.parts * (plan.columns ? shape.spatial : 1));
  }
}

// The bits of a run do not depend on the other runs.
TEST(CudaColumnsPlan, PartsOfARunDoNotDependOnOtherRuns) {
  for (const int64_t cols : {2, 64, 2048, 2049, 16384, 16385, 1 << 24}) {
    const auto plan = [&](int64_t channels) {
      return PlanColumns({.batch = 1,
                          .channels = channels,
                          .spatial = cols,
                          .independent_of_channel_count = true});
    };
    const ColumnsPlan one = plan(1);
    for (const int64_t channels : {2, 1000, 1 << 20}) {
      EXPECT_EQ(plan(channels).team, one.team);
      EXPECT_EQ(plan(channels).part, one.part);
    }
  }
}

// Sums are a small part of the data that is read, if that is enough to fill a device.
TEST(CudaColumnsPlan, PairsAreFew) {
  for (const int64_t width : {1, 7, 64, 1024, 65536}) {
    for (const int64_t spatial : {1, 49, 196, 3136}) {
      const ColumnsShape shape = {
          .batch = (int64_t{1} << 31) / width / spatial, .channels = width, .spatial = spatial};
      if (shape.batch == 0) continue;
      const int64_t bytes = shape.batch * shape.channels * shape.spatial * 2;
      const int64_t pairs = shape.channels * PlanColumns(shape).pairs;
      EXPECT_LE(pairs * int64_t{sizeof(SumPair)}, bytes / 20) << Text(shape);
    }
  }
}

TEST(CudaColumnsPlan, FewChannelsAreSharedByBlocks) {
  EXPECT_GE(PlanColumns({.batch = 1, .channels = 1, .spatial = 1 << 24}).launch.blocks, 264);
  EXPECT_GE(PlanColumns({.batch = 1 << 20, .channels = 8, .spatial = 1}).launch.blocks, 264);
  EXPECT_GE(PlanColumns({.batch = 64, .channels = 3, .spatial = 50176, .pack = 4}).launch.blocks,
            264);
}

}  // namespace
}  // namespace planish::internal::cuda
