#include <gtest/gtest.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "src/base/cuda/emulation.h"
#include "src/norm/cuda/norm_testing.h"
#include "src/norm/cuda/params.h"
#include "src/norm/cuda/rows.h"
#include "src/norm/cuda/rows_plan.h"

// Tests that only the emulation can run.
namespace planish {
namespace {

using internal::emulation::Order;
using internal::emulation::SetOrder;
using tests::OnDevice;

// No order of threads changes a bit, so no result depends on a missing barrier.
TEST(CudaEmulated, TheOrderOfThreadsChangesNoBit) {
  for (const Norm norm : {Norm::kLayer, Norm::kRms, Norm::kAdaAsCoded}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{300, 3},
                                     {20, 24},
                                     {20, 130},
                                     {3, 1024},
                                     {2, 9000},
                                     {2, 20000}}) {
      const tests::Problem<float> p(norm, rows, cols);
      for (const int clusters : tests::ClustersFor(cols)) {
        const tests::ClustersUpTo limit(clusters);
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
}

// Clusters of 2 to 8 blocks share rows, with single elements, or with a residual whose sum
// overwrites x. All blocks must read the row's first element before it is overwritten.
TEST(CudaEmulated, TheOrderOfBlocksOfAClusterChangesNoBit) {
  for (const int64_t cols : {8999, 9000, 20000}) {
    const int64_t rows = 3;
    tests::Problem<float> p(Norm::kLayer, rows, cols);
    const std::vector<float> more = tests::Problem<float>(Norm::kLayer, rows, cols, 3, 2, 5).x;
    const auto unaligned = tests::ApplyOnDevice(p, {.offset = 1, .padding = 3});
    std::vector<float> y, sum, dx;
    for (const Order order : {Order::kForward, Order::kBackward, Order::kRandom}) {
      SetOrder(order);
      EXPECT_EQ(unaligned.DiffersIn(tests::ApplyOnDevice(p, {.offset = 1, .padding = 3})), "")
          << cols;
      OnDevice<float> x(p.x), residual(more), to(p.x), mean(unaligned.mean),
          mean_lo(unaligned.mean_lo), rstd(unaligned.rstd), dy(p.dy), back(p.x);
      cuda::NormForward<float>(Norm::kLayer, {.rows = rows,
                                              .cols = cols,
                                              .x = x.data(),
                                              .y = to.data(),
                                              .residual = residual.data(),
                                              .sum = x.data()});
      cuda::NormBackward<float>(Norm::kLayer, {.rows = rows,
                                               .cols = cols,
                                               .dy = dy.data(),
                                               .x = residual.data(),
                                               .mean = mean.data(),
                                               .mean_lo = mean_lo.data(),
                                               .rstd = rstd.data(),
                                               .dx = back.data(),
                                               .dsum = x.data()});
      if (order == Order::kForward) y = to.Get(), sum = x.Get(), dx = back.Get();
      EXPECT_TRUE(tests::SameBits(to.Get(), y)) << cols;
      EXPECT_TRUE(tests::SameBits(x.Get(), sum)) << cols;
      EXPECT_TRUE(tests::SameBits(back.Get(), dx)) << cols;
    }
    SetOrder(Order::kForward);
  }
}

// The squares of these rows exceed float, so blocks synchronize two more times.
TEST(CudaEmulated, TheOrderOfBlocksChangesNoBitOfScaledRows) {
  for (const double size : {1e30, 1e-30}) {
    tests::Problem<float> p(Norm::kLayer, 2, 20000, size, size);
    p.eps = 0;
    const auto first = tests::ApplyOnDevice(p);
    for (const float rstd : first.rstd) EXPECT_NEAR(rstd * size, 1, 0.025);  // 5 / sqrt(2 cols)
    for (const Order order : {Order::kBackward, Order::kRandom}) {
      SetOrder(order);
      EXPECT_EQ(first.DiffersIn(tests::ApplyOnDevice(p)), "") << size;
    }
    SetOrder(Order::kForward);
  }
}

// With fewer clusters than rows, as in a grid of the maximum size, each cluster processes several
// rows, some one more than others.
TEST(CudaEmulated, ClustersTakeRowsInTurn) {
  const int64_t rows = 5, cols = 20000;
  const tests::Problem<float> p(Norm::kLayer, rows, cols);
  const auto expected = tests::ApplyOnDevice(p);
  internal::cuda::RowsPlan plan =
      internal::cuda::PlanForward({.rows = rows, .cols = cols, .pack = 4, .cluster_blocks = 8});
  ASSERT_EQ(plan.launch.cluster, 4);
  plan.launch.blocks = 2 * plan.launch.cluster;
  for (const Order order : {Order::kForward, Order::kBackward, Order::kRandom}) {
    SetOrder(order);
    OnDevice<float> x(p.x), y(p.x), gain(p.gain), bias(p.bias);
    const internal::cuda::Forward<float> call = {{{.rows = rows,
                                                   .cols = cols,
                                                   .x = x.data(),
                                                   .gain = gain.data(),
                                                   .bias = bias.data(),
                                                   .y = y.data(),
                                                   .x_stride = cols,
                                                   .y_stride = cols},
                                                  true},
                                                 {.eps = p.eps, .centre = true}};
    internal::cuda::RunForward("test", call, plan, nullptr, nullptr);
    EXPECT_TRUE(tests::SameBits(y.Get(), expected.y));
  }
  SetOrder(Order::kForward);
}

// Teams of at most a warp, and blocks, also process several rows. They prefetch their next row, and
// keep gains and biases for all rows in shared memory.
template <class T>
class TurnsTest : public ::testing::Test {};
using TurnsTypes = ::testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(TurnsTest, TurnsTypes);

TYPED_TEST(TurnsTest, TeamsTakeRowsInTurn) {
  using T = TypeParam;
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{67, 33}, {67, 64}, {9, 1101}, {9, 1104}}) {
    const tests::Problem<T> p(Norm::kLayer, rows, cols);
    const auto expected = tests::ApplyOnDevice(p);
    for (const bool aligned : {false, true}) {
      constexpr int kPack = internal::cuda::kFullPack<T>;
      if (aligned && cols % kPack != 0) continue;
      internal::cuda::RowsPlan plan =
          internal::cuda::PlanForward({.rows = rows,
                                       .cols = cols,
                                       .pack = aligned ? kPack : 1,
                                       .element_bytes = static_cast<int>(sizeof(T))});
      ASSERT_FALSE(plan.multi_pass);
      for (const int64_t blocks : {1, 2}) {
        plan.launch.blocks = blocks;
        for (const Order order : {Order::kForward, Order::kBackward, Order::kRandom}) {
          SetOrder(order);
          OnDevice<T> x(p.x), gain(p.gain), bias(p.bias);
          const internal::cuda::Forward<T> call = {{{.rows = rows,
                                                     .cols = cols,
                                                     .x = x.data(),
                                                     .gain = gain.data(),
                                                     .bias = bias.data(),
                                                     .y = x.data(),
                                                     .x_stride = cols,
                                                     .y_stride = cols},
                                                    std::is_same_v<T, float>},
                                                   {.eps = p.eps, .centre = true}};
          internal::cuda::RunForward("test", call, plan, nullptr, nullptr);
          EXPECT_TRUE(tests::SameBits(x.Get(), expected.y)) << rows << " x " << cols;
        }
      }
    }
  }
  SetOrder(Order::kForward);
}

// Clusters of 4 blocks need more partial sums than clusters of 8 and than multi-pass plans. The
// reported size suffices for every device, and a call requires only what it uses.
TEST(CudaEmulated, WorkspaceIsThatOfAnyDevice) {
  const int64_t rows = 70, cols = 16392;
  const tests::Problem<float> p(Norm::kLayer, rows, cols);
  OnDevice<float> x(p.x), dy(p.dy), mean(std::vector<float>(rows, 0)), dbias(p.gain),
      rstd(std::vector<float>(rows, 1));
  const NormBackwardArgs<float> args = {.rows = rows,
                                        .cols = cols,
                                        .dy = dy.data(),
                                        .x = x.data(),
                                        .mean = mean.data(),
                                        .mean_lo = mean.data(),
                                        .rstd = rstd.data(),
                                        .dbias = dbias.data()};
  const auto run = [&](int clusters, char* workspace, int64_t bytes) {
    const tests::ClustersUpTo limit(clusters);
    cuda::NormBackward(Norm::kLayer, args, {.workspace = workspace, .workspace_bytes = bytes});
  };
  OnDevice<char> space(std::vector<char>(static_cast<size_t>(cuda::WorkspaceBytes(args))));
  std::vector<double> expected(static_cast<size_t>(cols));
  for (size_t i = 0; i < p.dy.size(); ++i) expected[i % expected.size()] += p.dy[i];
  for (const int clusters : {1, 2, 4, 8}) {
    run(clusters, space.data(), space.bytes());
    const std::vector<float> sums = dbias.Get();
    // 70 values of about 1, so each sum is below 64.
    for (size_t c = 0; c < sums.size(); ++c) ASSERT_NEAR(sums[c], expected[c], 70 * 64 * 0x1p-24);
  }
  EXPECT_THROW(run(4, space.data(), space.bytes() - 1), Error);
}

}  // namespace
}  // namespace planish
