#include "src/norm/cuda/rows_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace planish::internal::cuda {
namespace {

std::string Text(const RowsShape& shape) {
  return std::to_string(shape.rows) + " x " + std::to_string(shape.cols) + ", packs of " +
         std::to_string(shape.pack) + " of " + std::to_string(shape.element_bytes) + " bytes" +
         ", clusters of " + std::to_string(shape.cluster_blocks) +
         (shape.columns ? ", with columns" : "");
}

// Shapes on both sides of all limits, up to 2^33 rows and 2^33 columns, on devices with clusters
// and without.
std::vector<RowsShape> Shapes() {
  std::vector<RowsShape> shapes;
  for (const int bytes : {2, 4, 8}) {
    for (const int pack : {1, 16 / bytes}) {
      for (const int64_t cols :
           {1,     2,     7,     8,     16,    17,     32,     64,     128,    256,    496,
            512,   520,   768,   1000,  1024,  4095,   4096,   4097,   4104,   8184,   8192,
            8193,  8200,  9000,  16376, 16384, 16385,  16392,  20000,  32761,  32768,  32769,
            32776, 65529, 65536, 65537, 65544, 100000, 131065, 131072, 131073, 131080, 1 << 24}) {
        if (cols % pack != 0) continue;
        for (const int64_t rows : {int64_t{1}, int64_t{2}, int64_t{100}, int64_t{1000},
                                   int64_t{135168}, int64_t{1} << 24, int64_t{1} << 33}) {
          if (cols > INT64_MAX / 8 / rows) continue;
          for (const bool columns : {false, true}) {
            for (const int blocks : {1, 2, 4, 8}) {
              shapes.push_back({rows, cols, pack, bytes, columns, blocks});
            }
          }
        }
      }
    }
    shapes.push_back({1, int64_t{1} << 33, 1, bytes, true, kMaxClusterBlocks});
  }
  return shapes;
}

void ExpectLaunchable(const RowsPlan& plan) {
  EXPECT_GE(plan.launch.blocks, 1);
  EXPECT_LE(plan.launch.blocks, kMaxBlocks);
  EXPECT_GE(plan.launch.blocks_y, 1);
  EXPECT_LE(plan.launch.blocks_y, kMaxBlocksY);
  EXPECT_LE(plan.launch.threads, kMaxThreads);
  EXPECT_EQ(plan.launch.threads % kWarpThreads, 0);
  EXPECT_EQ(plan.launch.threads * plan.launch.cluster % plan.team, 0);
  EXPECT_EQ(plan.launch.blocks % plan.launch.cluster, 0);
}

void ExpectHeld(const RowsShape& shape, const RowsPlan& plan) {
  EXPECT_EQ(plan.aligned, shape.pack > 1);
  EXPECT_TRUE(plan.held == 8 || plan.held == 16 || plan.held == 32);
  EXPECT_GE(int64_t{plan.team} * plan.held, shape.cols) << "every element has a place";
  EXPECT_TRUE(plan.team % kWarpThreads == 0 ||
              (plan.team < kWarpThreads && std::has_single_bit(static_cast<unsigned>(plan.team))));
  const int cluster = plan.launch.cluster;
  EXPECT_LE(cluster, shape.cluster_blocks);
  EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(cluster)));
  if (plan.team > kWarpThreads) {
    EXPECT_EQ(plan.team, plan.launch.threads * cluster) << "they have one team of several warps";
    EXPECT_LT((int64_t{plan.team} - int64_t{kWarpThreads} * cluster) * plan.held, shape.cols)
        << "no warp of each block is idle";
  }
}

// Checks that blocks share a row only if it exceeds `of_block`, the elements that one block holds.
// Blocks have few threads if a cluster of such blocks holds the row.
void ExpectClusters(const RowsShape& shape, const RowsPlan& plan, int64_t of_block, int held,
                    int max_threads) {
  EXPECT_EQ(plan.launch.cluster > 1, !plan.multi_pass && shape.cols > of_block);
  if (plan.launch.cluster == 1) return;
  EXPECT_EQ(plan.held, held);
  EXPECT_LE(plan.launch.threads, max_threads);
  const int few = std::min(kClusterThreads, max_threads);
  EXPECT_EQ(plan.launch.threads <= few, shape.cols <= int64_t{few} * held * shape.cluster_blocks);
}

// Checks that the device's clusters do not change the plan of a row that a block holds.
void ExpectSamePlan(const RowsPlan& plan, const RowsPlan& without_clusters) {
  EXPECT_EQ(plan.held, without_clusters.held);
  EXPECT_EQ(plan.team, without_clusters.team);
  EXPECT_EQ(plan.launch.blocks, without_clusters.launch.blocks);
  EXPECT_EQ(plan.launch.threads, without_clusters.launch.threads);
  EXPECT_EQ(plan.launch.cluster, 1);
  EXPECT_EQ(plan.multi_pass, without_clusters.multi_pass);
  EXPECT_EQ(plan.parts, without_clusters.parts);
  EXPECT_EQ(plan.part_cols, without_clusters.part_cols);
  EXPECT_EQ(plan.partials, without_clusters.partials);
}

RowsShape WithoutClusters(RowsShape shape) {
  shape.cluster_blocks = 1;
  return shape;
}

// Checks that the parts cover all columns, and that none is empty.
void ExpectMultiPass(const RowsShape& shape, const RowsPlan& plan) {
  EXPECT_GE(plan.parts, 1);
  EXPECT_GE(plan.part_cols * plan.parts, shape.cols);
  EXPECT_LT(plan.part_cols * (plan.parts - 1), shape.cols);
  EXPECT_EQ(plan.part_cols % 8, 0) << "packs are not cut";
  EXPECT_EQ(plan.team, plan.launch.threads);
}

TEST(CudaPlan, ForwardFitsTheShape) {
  for (const RowsShape& shape : Shapes()) {
    if (shape.columns) continue;
    SCOPED_TRACE(Text(shape));
    const RowsPlan plan = PlanForward(shape);
    ExpectLaunchable(plan);
    const bool shifted = IsShifted(shape.element_bytes, shape.pack > 1);
    const int64_t max_cols = shape.element_bytes == 8 ? 8192 : 16384;
    EXPECT_EQ(plan.multi_pass, shape.cols > max_cols * shape.cluster_blocks);
    ExpectClusters(shape, plan, max_cols, shape.element_bytes == 8 ? 8 : 16, 1024);
    if (plan.multi_pass || shape.cols <= max_cols)
      ExpectSamePlan(plan, PlanForward(WithoutClusters(shape)));
    if (plan.multi_pass) {
      ExpectMultiPass(shape, plan);
    } else {
      ExpectHeld(shape, plan);
      EXPECT_LE(plan.launch.threads,
                plan.launch.cluster > 1 ? 1024 : MaxForwardThreads(plan.held, shifted));
      EXPECT_LE(plan.held, MaxForwardHeld(shape.element_bytes));
    }
    const int64_t bytes = ForwardWorkspaceBytes(shape, plan);
    EXPECT_EQ(bytes, plan.multi_pass && plan.parts > 1 ? shape.rows * plan.parts * 32 : 0);
  }
}

TEST(CudaPlan, BackwardFitsTheShape) {
  for (const RowsShape& shape : Shapes()) {
    SCOPED_TRACE(Text(shape));
    const RowsPlan plan = PlanBackward(shape);
    ExpectLaunchable(plan);
    const int64_t max_cols = shape.element_bytes == 8 ? 4096 : 8192;
    EXPECT_EQ(plan.multi_pass, shape.cols > max_cols * shape.cluster_blocks);
    ExpectClusters(shape, plan, max_cols, 8, MaxBackwardThreads(8, shape.element_bytes));
    if (plan.multi_pass || shape.cols <= max_cols) {
      ExpectSamePlan(plan, PlanBackward(WithoutClusters(shape)));
    }
    if (plan.multi_pass) {
      ExpectMultiPass(shape, plan);
    } else {
      ExpectHeld(shape, plan);
      EXPECT_LE(plan.launch.threads, MaxBackwardThreads(plan.held, shape.element_bytes));
    }
    if (!shape.columns) {
      EXPECT_EQ(plan.partials, 0);
      continue;
    }
    EXPECT_GE(plan.partials, 1);
    if (plan.multi_pass) {
      EXPECT_GE(plan.partials * plan.partial_rows, shape.rows);
      EXPECT_LT((plan.partials - 1) * plan.partial_rows, shape.rows);
      EXPECT_LE(plan.partial_rows, kRowsInTurn);
    } else {
      EXPECT_EQ(plan.partials * plan.launch.cluster, plan.launch.blocks);
      const int64_t teams = plan.launch.threads * plan.launch.cluster / plan.team;
      EXPECT_LE((shape.rows + teams - 1) / teams, plan.partials * kRowsInTurn)
          << "sums of too many rows in one thread";
      // Teams of at most a warp sum dgain and dbias in shared memory.
      if (plan.team <= kWarpThreads) {
        const int64_t sums = plan.launch.threads / kWarpThreads * 2 * shape.cols *
                             (shape.element_bytes == 8 ? 8 : 4);
        EXPECT_LE(sums, kMaxSharedBytes);
      }
    }
    EXPECT_GE(BackwardWorkspaceBytes(shape, plan, 4), plan.partials * 2 * shape.cols * 4);
  }
}

// For enough rows to fill a device, partial sums are a small part of the data that is read.
TEST(CudaPlan, PartialSumsAreFew) {
  for (const int64_t cols : {1, 7, 64, 256, 1024, 8192, 65536}) {
    for (const int blocks : {1, kMaxClusterBlocks}) {
      const RowsShape shape = {.rows = (int64_t{1} << 30) / cols,
                               .cols = cols,
                               .columns = true,
                               .cluster_blocks = blocks};
      const RowsPlan plan = PlanBackward(shape);
      EXPECT_LE(BackwardWorkspaceBytes(shape, plan, 4), shape.rows * cols * 4 / 100) << cols;
    }
  }
}

TEST(CudaPlan, FewLongRowsAreSharedByBlocks) {
  const RowsPlan plan = PlanForward({.rows = 1, .cols = 1 << 24});
  EXPECT_TRUE(plan.multi_pass);
  EXPECT_GE(plan.launch.blocks, 250);
}

TEST(CudaPlan, FewRowsAreSharedByMoreThreads) {
  const RowsPlan few = PlanForward({.rows = 64, .cols = 4096, .pack = 4});
  const RowsPlan many = PlanForward({.rows = 65536, .cols = 4096, .pack = 4});
  EXPECT_EQ(few.held, 8);
  EXPECT_EQ(few.team, 512);
  EXPECT_EQ(many.held, 16);
  EXPECT_EQ(many.team, 256);
  // With 16-bit elements a thread holds twice as many.
  const RowsPlan halves = PlanForward({.rows = 65536, .cols = 4096, .pack = 8, .element_bytes = 2});
  EXPECT_EQ(halves.held, 32);
  EXPECT_EQ(halves.team, 128);
}

// Warps hold rows of up to 1,024 16-bit elements, without barriers. The alignment of rows does not
// change the assignment of columns to threads. Threads read whole lines of short rows at any
// alignment.
TEST(CudaPlan, ManyRowsOfHalvesAreHeldByWarps) {
  for (const int pack : {1, 8}) {
    for (const int64_t cols : {512, 768, 1024}) {
      const RowsPlan plan =
          PlanForward({.rows = 1 << 20, .cols = cols, .pack = pack, .element_bytes = 2});
      EXPECT_EQ(plan.held, 32);
      EXPECT_LE(plan.team, kWarpThreads);
    }
    EXPECT_EQ(PlanForward({.rows = 1 << 20, .cols = 64, .pack = pack, .element_bytes = 2}).team, 8);
  }
}

// Blocks of 16-bit rows read gains and biases once for all their rows. There are as many as run at
// the same time. Warps that hold aligned rows have eight rows a team instead, if there are enough
// rows to fill the device. Floats have a block for each row.
TEST(CudaPlan, BlocksThatReadParametersOnceTakeRowsInTurn) {
  const auto launch = [](int64_t rows, int64_t cols, int pack, int bytes) {
    return PlanForward({.rows = rows, .cols = cols, .pack = pack, .element_bytes = bytes}).launch;
  };
  EXPECT_EQ(launch(1 << 20, 1000, 8, 2).blocks, (1 << 20) / 8 / 8);
  EXPECT_EQ(launch(1 << 13, 1000, 8, 2).blocks, 528);
  EXPECT_FALSE(launch(1 << 20, 1000, 8, 2).resident);
  EXPECT_TRUE(launch(1 << 20, 1000, 1, 2).resident);
  EXPECT_TRUE(launch(1 << 20, 2000, 8, 2).resident);
  for (const int pack : {1, 4}) {
    EXPECT_FALSE(launch(1 << 20, 1000, pack, 4).resident);
    EXPECT_EQ(launch(1 << 20, 1000, pack, 4).blocks, 1 << 20);
  }
}

// The number of backward blocks that sum dgain and dbias is a multiple of those that run at the
// same time.
TEST(CudaPlan, ColumnsAreSummedByFullWavesOfBlocks) {
  const auto partials = [](int64_t rows, int64_t cols, int bytes) {
    const RowsPlan plan = PlanBackward(
        {.rows = rows, .cols = cols, .pack = 16 / bytes, .element_bytes = bytes, .columns = true});
    EXPECT_EQ(plan.launch.blocks, plan.partials);
    return plan.partials;
  };
  EXPECT_EQ(partials(262144, 1024, 2), 132 * 8);  // blocks of 64 threads
  EXPECT_EQ(partials(349525, 768, 2), 2 * 132 * 8);
  EXPECT_EQ(partials(32768, 8192, 2), 132);
  EXPECT_EQ(partials(100, 1024, 2), 100);
}

}  // namespace
}  // namespace planish::internal::cuda
