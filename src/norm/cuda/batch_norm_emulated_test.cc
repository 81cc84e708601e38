#include <gtest/gtest.h>

#include "src/base/cuda/emulation.h"
#include "src/norm/cuda/batch_norm_testing.h"

// Tests that only the emulation can run.
namespace planish {
namespace {

using internal::emulation::Order;
using internal::emulation::SetOrder;
using tests::Shape;
using tests::batch_norm::ApplyOnDevice;
using tests::batch_norm::Problem;

// No order of threads changes a bit, so no result depends on a missing barrier.
template <class T>
void ExpectTheSameInAnyOrder() {
  for (const Shape& shape :
       {Shape{40, 24, 1}, {300, 3, 1}, {9, 5, 7}, {3, 5, 64}, {2, 3, 1500}, {1, 2, 20000}}) {
    const Problem<T> p(shape);
    const auto first = ApplyOnDevice(p);
    for (const Order order : {Order::kBackward, Order::kRandom}) {
      SetOrder(order);
      EXPECT_EQ(first.DiffersIn(ApplyOnDevice(p)), "") << shape;
      EXPECT_EQ(first.DiffersIn(ApplyOnDevice(p, {.in_place = true})), "") << shape;
    }
    SetOrder(Order::kForward);
  }
}

TEST(CudaBatchNormEmulated, TheOrderOfThreadsChangesNoBit) {
  ExpectTheSameInAnyOrder<float>();
  ExpectTheSameInAnyOrder<double>();
}

}  // namespace
}  // namespace planish
