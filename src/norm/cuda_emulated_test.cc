#include <gtest/gtest.h>

#include <utility>

#include "src/base/cuda_emulation.h"
#include "src/norm/cuda_testing.h"

// What only the emulation of a GPU can be asked.
namespace planish {
namespace {

using internal::emulation::Order;
using internal::emulation::SetOrder;

// Whatever thread comes first, the bits are the same: no result depends on a barrier that is
// missing.
TEST(CudaEmulated, TheOrderOfThreadsChangesNoBit) {
  for (const Norm norm : {Norm::kLayer, Norm::kRms, Norm::kAdaAsCoded}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{300, 3},
                                     {20, 24},
                                     {20, 130},
                                     {3, 1024},
                                     {2, 9000},
                                     {2, 20000}}) {
      const tests::Problem<float> p(norm, rows, cols);
      const auto first = tests::ApplyOnDevice(p);
      for (const Order order : {Order::kBackward, Order::kRandom}) {
        SetOrder(order);
        EXPECT_EQ(first.DiffersIn(tests::ApplyOnDevice(p)), "")
            << tests::NameOf(norm) << ' ' << rows << " x " << cols;
        EXPECT_EQ(first.DiffersIn(tests::ApplyOnDevice(p, {.in_place = true})), "")
            << tests::NameOf(norm) << ' ' << rows << " x " << cols << " in place";
      }
      SetOrder(Order::kForward);
    }
  }
}

}  // namespace
}  // namespace planish
