#include "src/norm/cuda_plan.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace planish::internal::cuda {
namespace {

std::string Text(const RowsWork& work) {
  return std::to_string(work.rows) + " x " + std::to_string(work.cols) + ", packs of " +
         std::to_string(work.pack) + " of " + std::to_string(work.element_bytes) + " bytes" +
         (work.columns ? ", with columns" : "");
}

// Every shape that is near a limit of something, to 2^33 rows and 2^33 columns.
std::vector<RowsWork> Works() {
  std::vector<RowsWork> works;
  for (const int bytes : {2, 4, 8}) {
    for (const int pack : {1, 16 / bytes}) {
      for (const int64_t cols :
           {1,    2,    7,     8,     16,    17,    32,    64,    128,    256,    496,
            512,  520,  768,   1000,  1024,  4095,  4096,  4104,  8184,   8192,   8200,
            8193, 9000, 16376, 16384, 16392, 16385, 32768, 65536, 100000, 1 << 24}) {
        if (cols % pack != 0) continue;
        for (const int64_t rows : {int64_t{1}, int64_t{2}, int64_t{100}, int64_t{1000},
                                   int64_t{135168}, int64_t{1} << 24, int64_t{1} << 33}) {
          if (cols > INT64_MAX / 8 / rows) continue;
          for (const bool columns : {false, true})
            works.push_back({rows, cols, pack, bytes, columns});
        }
      }
    }
    works.push_back({1, int64_t{1} << 33, 1, bytes, true});
  }
  return works;
}

void ExpectLaunchable(const RowsPlan& plan) {
  EXPECT_GE(plan.launch.blocks, 1);
  EXPECT_LE(plan.launch.blocks, kMostBlocks);
  EXPECT_GE(plan.launch.blocks_y, 1);
  EXPECT_LE(plan.launch.blocks_y, kMostBlocksY);
  EXPECT_LE(plan.launch.threads, kMostThreads);
  EXPECT_EQ(plan.launch.threads % kWarpThreads, 0);
  EXPECT_EQ(plan.launch.threads % plan.team, 0);
}

void ExpectHeld(const RowsWork& work, const RowsPlan& plan) {
  EXPECT_EQ(plan.pack, work.pack);
  EXPECT_TRUE(plan.held == 8 || plan.held == kMostHeld);
  EXPECT_EQ(plan.held % plan.pack, 0);
  EXPECT_GE(int64_t{plan.team} * plan.held, work.cols) << "every number has a place";
  EXPECT_TRUE(plan.team % kWarpThreads == 0 ||
              (plan.team < kWarpThreads && std::has_single_bit(static_cast<unsigned>(plan.team))));
  if (plan.team > kWarpThreads) {
    EXPECT_EQ(plan.team, plan.launch.threads) << "a block has one team of several warps";
    EXPECT_LT((int64_t{plan.team} - kWarpThreads) * plan.held, work.cols) << "no warp is idle";
  }
}

// Parts follow one another and hold all columns; none is empty.
void ExpectStreamed(const RowsWork& work, const RowsPlan& plan) {
  EXPECT_GE(plan.parts, 1);
  EXPECT_GE(plan.part_cols * plan.parts, work.cols);
  EXPECT_LT(plan.part_cols * (plan.parts - 1), work.cols);
  EXPECT_EQ(plan.part_cols % 8, 0) << "packs are not cut";
  EXPECT_EQ(plan.team, plan.launch.threads);
}

TEST(CudaPlan, ForwardFitsTheShape) {
  for (const RowsWork& work : Works()) {
    if (work.columns) continue;
    SCOPED_TRACE(Text(work));
    const RowsPlan plan = PlanForward(work);
    ExpectLaunchable(plan);
    const int64_t most = (work.element_bytes == 8 ? 8192 : 16384) / (work.pack == 1 ? 2 : 1);
    EXPECT_EQ(plan.streamed, work.cols > most);
    if (plan.streamed) {
      ExpectStreamed(work, plan);
    } else {
      ExpectHeld(work, plan);
      EXPECT_LE(plan.launch.threads, MostForwardThreads(work.pack));
    }
    const int64_t bytes = ForwardWorkspaceBytes(work, plan);
    EXPECT_EQ(bytes, plan.streamed && plan.parts > 1 ? work.rows * plan.parts * 32 : 0);
  }
}

TEST(CudaPlan, BackwardFitsTheShape) {
  for (const RowsWork& work : Works()) {
    SCOPED_TRACE(Text(work));
    const RowsPlan plan = PlanBackward(work);
    ExpectLaunchable(plan);
    const int64_t most = (work.element_bytes == 8 ? 4096 : 8192) / (work.pack == 1 ? 2 : 1);
    EXPECT_EQ(plan.streamed, work.cols > most);
    if (plan.streamed) {
      ExpectStreamed(work, plan);
    } else {
      ExpectHeld(work, plan);
      EXPECT_LE(plan.launch.threads, MostBackwardThreads(work.pack, plan.held, work.element_bytes));
    }
    if (!work.columns) {
      EXPECT_EQ(plan.partials, 0);
      continue;
    }
    EXPECT_GE(plan.partials, 1);
    if (plan.streamed) {
      EXPECT_GE(plan.partials * plan.partial_rows, work.rows);
      EXPECT_LT((plan.partials - 1) * plan.partial_rows, work.rows);
      EXPECT_LE(plan.partial_rows, kRowsInTurn);
    } else {
      EXPECT_EQ(plan.partials, plan.launch.blocks);
      const int64_t teams = plan.launch.threads / plan.team;
      EXPECT_LE((work.rows + teams - 1) / teams, plan.partials * kRowsInTurn)
          << "sums of too many rows in one thread";
      // What teams of a warp or less add up in shared memory.
      if (plan.team <= kWarpThreads) {
        const int64_t sums =
            plan.launch.threads / kWarpThreads * 2 * work.cols * (work.element_bytes == 8 ? 8 : 4);
        EXPECT_LE(sums, kMostSharedBytes);
      }
    }
    EXPECT_GE(BackwardWorkspaceBytes(work, plan, 4), plan.partials * 2 * work.cols * 4);
  }
}

// Partial sums are a small part of what is read: of rows enough to fill a device.
TEST(CudaPlan, PartialSumsAreFew) {
  for (const int64_t cols : {1, 7, 64, 256, 1024, 8192, 65536}) {
    const RowsWork work = {.rows = (int64_t{1} << 30) / cols, .cols = cols, .columns = true};
    const RowsPlan plan = PlanBackward(work);
    EXPECT_LE(BackwardWorkspaceBytes(work, plan, 4), work.rows * cols * 4 / 100) << cols;
  }
}

TEST(CudaPlan, FewLongRowsAreSharedByBlocks) {
  const RowsPlan plan = PlanForward({.rows = 1, .cols = 1 << 24});
  EXPECT_TRUE(plan.streamed);
  EXPECT_GE(plan.launch.blocks, 250);
}

TEST(CudaPlan, FewRowsAreSharedByMoreThreads) {
  const RowsPlan few = PlanForward({.rows = 64, .cols = 4096, .pack = 4});
  const RowsPlan many = PlanForward({.rows = 65536, .cols = 4096, .pack = 4});
  EXPECT_EQ(few.held, 8);
  EXPECT_EQ(few.team, 512);
  EXPECT_EQ(many.held, 16);
  EXPECT_EQ(many.team, 256);
}

}  // namespace
}  // namespace planish::internal::cuda
