#include <gtest/gtest.h>

#include <utility>

#include "src/base/cuda/emulation.h"
#include "src/norm/cuda/pointwise_norm_testing.h"

// Tests that only the emulation can run.
namespace planish {
namespace {

using internal::emulation::Order;
using internal::emulation::SetOrder;
using tests::pointwise::ApplyOnDevice;
using tests::pointwise::Problem;

TEST(CudaPointwiseNormEmulated, TheOrderOfThreadsChangesNoBit) {
  for (const auto& [rows, cols] : {std::pair{300, 3}, {20, 100}, {1, 3000}, {2, 20000}}) {
    const Problem<float> p(Pointwise::kErf, rows, cols);
    const auto first = ApplyOnDevice(p);
    for (const Order order : {Order::kBackward, Order::kRandom}) {
      SetOrder(order);
      EXPECT_EQ(first.DiffersIn(ApplyOnDevice(p)), "") << rows << " x " << cols;
      EXPECT_EQ(first.DiffersIn(ApplyOnDevice(p, {.in_place = true})), "") << rows << " x " << cols;
    }
    SetOrder(Order::kForward);
  }
}

}  // namespace
}  // namespace planish
