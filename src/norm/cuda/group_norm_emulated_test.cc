#include <gtest/gtest.h>

#include <utility>

#include "src/base/cuda/emulation.h"
#include "src/norm/cuda/group_norm_testing.h"

// Tests that only the emulation can run.
namespace planish {
namespace {

using internal::emulation::Order;
using internal::emulation::SetOrder;
using tests::Shape;
using tests::group_norm::ApplyOnDevice;
using tests::group_norm::Problem;

TEST(CudaGroupNormEmulated, TheOrderOfThreadsChangesNoBit) {
  for (const auto& [shape, groups] : {std::pair<Shape, int64_t>{{3, 8, 5}, 2}, {{2, 6, 300}, 3}}) {
    const Problem<float> p(shape, groups);
    const auto first = ApplyOnDevice(p);
    for (const Order order : {Order::kBackward, Order::kRandom}) {
      SetOrder(order);
      EXPECT_EQ(first.DiffersIn(ApplyOnDevice(p)), "") << shape;
      EXPECT_EQ(first.DiffersIn(ApplyOnDevice(p, {.in_place = true})), "") << shape;
    }
    SetOrder(Order::kForward);
  }
}

}  // namespace
}  // namespace planish
