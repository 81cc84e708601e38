#include "src/norm/cuda/positions_plan.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

namespace planish::internal::cuda {
namespace {

// Shapes near every limit, to 2^33 in each size.
TEST(CudaPositionsPlan, FitsTheShape) {
  const int64_t sizes[] = {1,
                           2,
                           7,
                           8,
                           9,
                           16,
                           31,
                           32,
                           63,
                           64,
                           65,
                           127,
                           128,
                           256,
                           257,
                           1000,
                           1024,
                           2049,
                           8192,
                           65536,
                           (1 << 20) + 8,
                           int64_t{1} << 31,
                           int64_t{1} << 33};
  for (const int bytes : {2, 4, 8}) {
    for (const int pack : {1, 16 / bytes}) {
      for (const int64_t batch : sizes) {
        for (const int64_t channels : sizes) {
          if (batch > (int64_t{1} << 50) / channels) continue;
          for (const int64_t spatial : sizes) {
            if (spatial > (int64_t{1} << 50) / (batch * channels) || spatial % pack != 0) continue;
            SCOPED_TRACE(testing::Message() << batch << " x " << channels << " x " << spatial
                                            << ", packs of " << pack << " of " << bytes);
            const PositionsPlan plan = PlanPositions({batch, channels, spatial, pack, bytes});
            ASSERT_EQ(plan.pack, pack);
            ASSERT_EQ(plan.launch.threads, kPositionsThreads);
            ASSERT_GE(plan.launch.blocks, 1);
            ASSERT_LE(plan.launch.blocks, kMaxBlocks);
            ASSERT_LE(plan.launch.blocks, batch * spatial);
            ASSERT_TRUE(std::has_single_bit(static_cast<unsigned>(plan.team)));
            ASSERT_LE(plan.team, kPositionsThreads);
            ASSERT_LE(plan.team * pack, kMaxPositions);
            ASSERT_GE(plan.team * pack * bytes, 32) << "memory reads no more than is used";
            ASSERT_LE(PositionsBytes(pack, plan.team, bytes == 8 ? 8 : 4), kMaxSharedBytes);
          }
        }
      }
    }
  }
}

TEST(CudaPositionsPlan, FewPositionsAreSharedByMoreThreads) {
  EXPECT_EQ(PlanPositions({1, 4096, 64, 4, 4}).team, 8);
  EXPECT_EQ(PlanPositions({64, 64, 3136, 4, 4}).team, 32);
  EXPECT_EQ(PlanPositions({64, 3, 50176, 4, 4}).team, 256);
}

}  // namespace
}  // namespace planish::internal::cuda
