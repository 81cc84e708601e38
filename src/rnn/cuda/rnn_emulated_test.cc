#include <gtest/gtest.h>

#include "src/base/cuda/emulation.h"
#include "src/rnn/cuda/testing.h"

// Tests that only the emulation allows.
namespace planish {
namespace {

using internal::emulation::Order;
using internal::emulation::SetOrder;

// The order of threads does not change the bits, so no barrier is missing. Blocks of one warp and
// of several, and more units than threads.
TEST(RnnCudaEmulated, TheOrderOfThreadsChangesNoBit) {
  for (const auto& [cell, recurrence] : tests::CudaKinds()) {
    for (const RnnShape& shape : {RnnShape{3, 2, 3, 5}, {2, 2, 3, 70}, {1, 1, 2, 530}}) {
      if (shape.hidden == 530 && cell != Cell::kLnLstm && cell != Cell::kLnGru) continue;
      const tests::RnnProblem<float> p(cell, tests::Shaped(shape, recurrence),
                                       {.lengths = true, .resets = true});
      const auto first = tests::ApplyOnDevice(p);
      for (const Order order : {Order::kBackward, Order::kRandom}) {
        SetOrder(order);
        const auto again = tests::ApplyOnDevice(p);
        EXPECT_EQ(first.DiffersIn(again), "") << tests::NameOf(cell) << " H " << shape.hidden;
      }
      SetOrder(Order::kForward);
    }
  }
}

// The order of threads in persistent kernels.
TEST(RnnCudaEmulated, TheOrderOfThreadsChangesNoBitPersistent) {
  for (const Cell cell : tests::CudaCells()) {
    const tests::RnnProblem<float> p(cell, {3, 3, 3, 19}, {.lengths = true, .resets = true});
    ASSERT_TRUE(cuda::RnnFitsPersistent<float>(cell, p.layer.shape));
    const auto first = tests::ApplyOnDevice(p, true);
    for (const Order order : {Order::kBackward, Order::kRandom}) {
      SetOrder(order);
      const auto again = tests::ApplyOnDevice(p, true);
      EXPECT_EQ(first.DiffersIn(again), "") << tests::NameOf(cell);
    }
    SetOrder(Order::kForward);
  }
}

}  // namespace
}  // namespace planish
