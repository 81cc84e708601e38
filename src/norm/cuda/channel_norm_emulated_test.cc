#include <gtest/gtest.h>

#include "src/base/cuda/emulation.h"
#include "src/norm/cuda/channel_norm_testing.h"

// Tests that only the emulation can run.
namespace planish {
namespace {

using internal::emulation::Order;
using internal::emulation::SetOrder;
using tests::Shape;
using tests::channel_norm::ApplyOnDevice;
using tests::channel_norm::Problem;

template <class T>
void ExpectTheSameInAnyOrder(Norm norm) {
  for (const Shape& shape : {Shape{9, 24, 5}, {2, 300, 8}, {3, 5, 64}, {1, 33, 300}}) {
    const Problem<T> p(norm, shape);
    const auto first = ApplyOnDevice(p);
    for (const Order order : {Order::kBackward, Order::kRandom}) {
      SetOrder(order);
      EXPECT_EQ(first.DiffersIn(ApplyOnDevice(p)), "") << shape;
      EXPECT_EQ(first.DiffersIn(ApplyOnDevice(p, {.in_place = true})), "") << shape;
    }
    SetOrder(Order::kForward);
  }
}

// No order of threads changes a bit.
TEST(CudaChannelNormEmulated, TheOrderOfThreadsChangesNoBit) {
  ExpectTheSameInAnyOrder<float>(Norm::kLayer);
  ExpectTheSameInAnyOrder<double>(Norm::kLayer);
  ExpectTheSameInAnyOrder<float>(Norm::kAdaAsCoded);
}

}  // namespace
}  // namespace planish
