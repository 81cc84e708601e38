#include "src/rnn/cuda/plan.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "src/base/cuda/launch.h"

namespace planish::internal::cuda {
namespace {

// The sizes of an H200.
constexpr int64_t kBlocks = 132, kSharedBytes = int64_t{227} << 10;

PersistentPlan Plan(Cell cell, const RnnShape& shape, int element_bytes = 4,
                    int64_t blocks = kBlocks) {
  return PlanPersistent(RecipeOf(cell), shape, element_bytes, blocks, kSharedBytes);
}

PersistentBackwardPlan BackwardPlan(Cell cell, const RnnShape& shape, int element_bytes = 4,
                                    int64_t blocks = kBlocks) {
  return PlanPersistentBackward(RecipeOf(cell), shape, element_bytes, blocks, kSharedBytes);
}

// 768 units are 6 for each of 128 blocks: 24 rows of 3 KB, and the arrays of a step.
TEST(PersistentPlan, LnLstmOf768Fits) {
  const PersistentPlan plan = Plan(Cell::kLnLstm, {1024, 16, 768, 768});
  ASSERT_TRUE(plan.fits);
  EXPECT_EQ(plan.units, 6);
  EXPECT_EQ(plan.blocks, 128);
  EXPECT_EQ(plan.threads, 384);  // a warp for each of 6 groups of rows and 2 of sequences
  EXPECT_EQ(plan.stride, 768);
  EXPECT_EQ(plan.rows, 24);
  EXPECT_EQ(plan.shared_bytes, 4 * (24 * 768 + 16 * 24 + 2 * 16 * 6 + 16 * 2 * 3 + (5 * 3 * 6 + 2) +
                                    2 * (16 * 24 + 16 * 3)));
  EXPECT_EQ(plan.sum_parts, kPersistentPart * 16 * 128);
  EXPECT_EQ(plan.cell_parts, kPersistentPart * 16 * 128);
}

// The slices are those of forward. Each block has partial sums of the gradient of 16 states.
TEST(PersistentPlan, LnLstmOf768FitsBackward) {
  const PersistentBackwardPlan plan = BackwardPlan(Cell::kLnLstm, {1024, 16, 768, 768});
  ASSERT_TRUE(plan.fits);
  EXPECT_EQ(plan.units, 6);
  EXPECT_EQ(plan.blocks, 128);
  EXPECT_EQ(plan.threads, 384);  // 2 groups of sequences, 192 packs of 4 states
  EXPECT_EQ(plan.rows, 24);
  EXPECT_EQ(plan.lanes, 16);
  EXPECT_EQ(plan.shared_bytes, 4 * (24 * 768 + 24 * 16 + 2 * 16 * 24 + 5 * 16 * 6 + 16 * 2 * 2));
  EXPECT_EQ(plan.sum_parts, 2 * 16 * 128);
  EXPECT_EQ(plan.cell_parts, 2 * 16 * 128);
  EXPECT_EQ(plan.partials, 128 * 16 * 768);
  EXPECT_EQ(plan.buffers, 1);
  // Without a norm, a step has only one grid barrier.
  EXPECT_EQ(BackwardPlan(Cell::kLstm, {1024, 16, 768, 768}).buffers, 2);
}

// Backward has one more array of states than an LSTM: the gradient of log(n). Forward has as many.
TEST(PersistentPlan, SlstmHasTheGradientOfLogN) {
  const RnnShape shape = {1024, 16, 768, 768};
  const PersistentBackwardPlan plan = BackwardPlan(Cell::kSlstm, shape);
  ASSERT_TRUE(plan.fits);
  EXPECT_EQ(plan.state_arrays, 3);
  EXPECT_EQ(plan.shared_bytes, BackwardPlan(Cell::kLstm, shape).shared_bytes + 4 * plan.states);
  EXPECT_EQ(Plan(Cell::kSlstm, shape).shared_bytes, Plan(Cell::kLstm, shape).shared_bytes);
}

TEST(PersistentPlan, TooLargeLayersDoNotFitBackward) {
  EXPECT_TRUE(BackwardPlan(Cell::kLnLstm, {100, 16, 64, 1280}).fits);
  EXPECT_FALSE(BackwardPlan(Cell::kLnLstm, {100, 16, 64, 1536}).fits);
  EXPECT_TRUE(BackwardPlan(Cell::kLnLstm, {100, kMaxPersistentBackwardBatch, 64, 768}).fits);
  EXPECT_FALSE(BackwardPlan(Cell::kLnLstm, {100, kMaxPersistentBackwardBatch + 1, 64, 768}).fits);
  EXPECT_FALSE(BackwardPlan(Cell::kLnLstm, {1, 16, 64, 768}).fits);
  EXPECT_FALSE(BackwardPlan(Cell::kLnLstm, {100, 0, 64, 768}).fits);
  EXPECT_FALSE(BackwardPlan(Cell::kLnLstm, {100, 16, 64, INT64_MAX / 1000}).fits);
  EXPECT_FALSE(BackwardPlan(Cell::kLnLstm, {100, 16, 64, 768}, 4, 0).fits);
}

TEST(PersistentPlan, TooLargeLayersDoNotFit) {
  EXPECT_TRUE(Plan(Cell::kLnLstm, {100, 16, 64, 1280}).fits);
  EXPECT_FALSE(Plan(Cell::kLnLstm, {100, 16, 64, 1536}).fits);
  EXPECT_TRUE(Plan(Cell::kLnGru, {100, 16, 64, 1536}).fits);
  EXPECT_TRUE(Plan(Cell::kLnRnn, {100, 16, 64, 2048}).fits);
  EXPECT_TRUE(Plan(Cell::kLnLstm, {100, 16, 64, 768}, 8).fits);
  EXPECT_FALSE(Plan(Cell::kLnLstm, {100, 16, 64, 1024}, 8).fits);
  EXPECT_FALSE(Plan(Cell::kLnLstm, {100, 16, 64, INT64_MAX / 1000}).fits);
  EXPECT_FALSE(Plan(Cell::kLnLstm, {100, kMaxPersistentBatch + 1, 64, 768}).fits);
  EXPECT_FALSE(Plan(Cell::kLnLstm, {1, 16, 64, 768}).fits);   // a step
  EXPECT_FALSE(Plan(Cell::kLnLstm, {100, 0, 64, 768}).fits);  // nothing
  EXPECT_FALSE(Plan(Cell::kLnLstm, {100, 16, 64, 768}, 4, 0).fits);
}

// Every unit has a block, every block has a unit, and shared memory suffices.
TEST(PersistentPlan, EveryUnitHasABlock) {
  for (const Cell cell :
       {Cell::kRnn, Cell::kLnRnn, Cell::kLnLstm, Cell::kLnLstmContrib, Cell::kLnLstmTorchaudio,
        Cell::kSlstm, Cell::kGru, Cell::kLnGru, Cell::kLnGruHaste, Cell::kLnGruDreamer}) {
    for (int64_t hidden = 1; hidden < 1400; hidden += hidden < 40 ? 1 : 17) {
      for (const int64_t blocks : {int64_t{1}, int64_t{3}, int64_t{108}, kBlocks}) {
        for (const int64_t batch : {1, 5, 64}) {
          const RnnShape shape{10, batch, 3, hidden};
          const PersistentPlan forward = Plan(cell, shape, 4, blocks);
          const PersistentBackwardPlan backward = BackwardPlan(cell, shape, 4, blocks);
          for (const PersistentSlices& plan :
               {PersistentSlices(forward), PersistentSlices(backward)}) {
            if (!plan.fits) continue;
            EXPECT_LE(plan.blocks, blocks);
            EXPECT_GE(plan.blocks * plan.units, hidden);
            EXPECT_LT((plan.blocks - 1) * plan.units, hidden);
            EXPECT_GE(plan.stride, hidden);
            EXPECT_EQ(plan.stride % 4, 0);
            EXPECT_GE(plan.rows, plan.units * RecipeOf(cell).gates());
            EXPECT_EQ(plan.rows % kPersistentRows, 0);
            EXPECT_LE(plan.shared_bytes, kSharedBytes);
            EXPECT_LE(plan.threads, kMaxPersistentThreads);
            EXPECT_EQ(plan.threads % kWarpThreads, 0);
          }
          if (backward.fits) {
            EXPECT_GE(backward.lanes, batch);
            EXPECT_EQ(backward.lanes % kPersistentSequences, 0);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace planish::internal::cuda
