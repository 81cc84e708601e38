#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/norm/cuda/online_norm_testing.h"

// Online normalization on a GPU against the CPU's reference. Compiled into two programs: one runs
// on the GPU and skips without one, the other runs on the emulation.
namespace planish {
namespace {

using tests::OnDevice;
using tests::SameBits;
using tests::Unset;
using tests::WithWorkspace;
using tests::online_norm::ApplyOnDevice;
using tests::online_norm::ExpectAgrees;
using tests::online_norm::Problem;
using tests::online_norm::Result;

class CudaOnlineNormDeviceTest : public tests::GpuTest {};

template <class T>
class CudaOnlineNormTest : public CudaOnlineNormDeviceTest {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(CudaOnlineNormTest, Types);

// Cases of one thread, several threads, a warp, a block and several blocks.
TYPED_TEST(CudaOnlineNormTest, AgreesWithTheReference) {
  for (const int64_t cols : {2, 3, 8, 9, 16, 31, 33, 64, 65, 256, 1000, 2048, 2049, 20000}) {
    for (const double alpha : {0.0, 0.1, 0.7, 1.0}) {
      if (cols > 100 && alpha != 0.7) continue;
      SCOPED_TRACE(testing::Message() << "cols " << cols << ", alpha " << alpha);
      const Problem<TypeParam> p(cols > 5000 ? 2 : 5, cols, alpha);
      ExpectAgrees(p, ApplyOnDevice(p));
    }
  }
}

// More cases than the scanning block has threads.
TYPED_TEST(CudaOnlineNormTest, ManyCases) {
  for (const auto& [rows, cols] : {std::pair{255, 4}, {256, 2}, {700, 5}, {600, 24}}) {
    const Problem<TypeParam> p(rows, cols, 0.05);
    ExpectAgrees(p, ApplyOnDevice(p));
  }
}

TEST_F(CudaOnlineNormDeviceTest, FloatIsExactFarFromZero) {
  const Problem<float> p(20, 64, 1.0, 1e4);  // see the test of the CPU
  ExpectAgrees(p, ApplyOnDevice(p));
}

TYPED_TEST(CudaOnlineNormTest, HowABatchIsCutChangesNoBit) {
  for (const auto& [rows, cols] : {std::pair{600, 4}, {37, 33}, {37, 64}, {3, 20000}}) {
    const Problem<TypeParam> p(rows, cols, 0.3);
    const Result<TypeParam> all = ApplyOnDevice(p);
    for (const int64_t cases : {1, 7}) {
      if (rows == 600 && cases == 1) continue;
      EXPECT_EQ(ApplyOnDevice(p, {}, cases).DiffersIn(all), "") << cases << " of " << cols;
    }
  }
}

TYPED_TEST(CudaOnlineNormTest, AnyLayout) {
  for (const int64_t cols : {7, 64, 4096}) {
    const Problem<TypeParam> p(5, cols, 0.5);
    EXPECT_EQ(ApplyOnDevice(p, {.in_place = true}).DiffersIn(ApplyOnDevice(p)), "");
    ExpectAgrees(p, ApplyOnDevice(p, {.offset = 1}));
    ExpectAgrees(p, ApplyOnDevice(p, {.offset = 3, .in_place = true}));
  }
}

TYPED_TEST(CudaOnlineNormTest, AlphaOfEachCase) {
  const Problem<TypeParam> p(2, 10, 7);              // overridden by alphas
  const auto out = ApplyOnDevice(p, {}, 0, {1, 0});  // the second case does not change the state
  EXPECT_EQ(out.mean[0], out.mean[1]);
  EXPECT_EQ(out.rstd[0], out.rstd[1]);
  const Problem<TypeParam> same(300, 10, 0.4);
  EXPECT_EQ(
      ApplyOnDevice(same).DiffersIn(ApplyOnDevice(same, {}, 0, std::vector<double>(300, 0.4))), "");
}

TYPED_TEST(CudaOnlineNormTest, ConstantCases) {
  Problem<TypeParam> p(3, 6, 0.5);
  std::ranges::fill(p.x, TypeParam{4});
  const auto out = ApplyOnDevice(p);
  // mu is 2, 3, 3.5; s^2 = 6/5 * (4 - mu)^2, never 0.
  EXPECT_EQ(out.mean[0], 2);
  EXPECT_EQ(out.mean[2], static_cast<TypeParam>(3.5));
  ExpectAgrees(p, out);
  p.alpha = 1;
  EXPECT_THAT(ApplyOnDevice(p).y, testing::Each(testing::IsNan()));
}

TYPED_TEST(CudaOnlineNormTest, NanStaysFromItsCaseOn) {
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    Problem<TypeParam> p(300, 6, 0.5);
    const auto clean = ApplyOnDevice(p);
    p.x[100 * 6 + 2] = static_cast<TypeParam>(bad);
    const auto out = ApplyOnDevice(p);
    for (size_t i = 0; i < p.x.size(); ++i) {
      if (i < 600) {
        ASSERT_EQ(out.y[i], clean.y[i]);
      } else {
        ASSERT_TRUE(std::isnan(out.y[i]));
      }
    }
    EXPECT_TRUE(std::isnan(out.state_mean) && std::isnan(out.state_deviation));
  }
}

// Equal values in both types: results differ by their rounding to 16 bits.
template <class Half>
void ExpectAgreesWithFloat() {
  for (const int64_t cols : {5, 40}) {
    Problem<float> p(4, cols, 0.4);
    const auto rounded = [](std::vector<float>& values) {
      std::vector<Half> halves;
      for (float& value : values) {
        halves.push_back(tests::FromDouble<Half>(static_cast<double>(value)));
        value = ToFloat(halves.back());
      }
      return halves;
    };
    OnDevice<Half> x(rounded(p.x)), dy(rounded(p.dy)), y(rounded(p.x)), dx(rounded(p.x));
    OnDevice<float> gain(p.gain), bias(p.bias), dgain(p.gain), dbias(p.bias);
    const auto expected = ApplyOnDevice(p);
    OnDevice<float> mean(expected.mean), mean_lo(expected.mean_lo), rstd(expected.rstd);
    OnDevice<float> offset(expected.offset), deviation(expected.deviation);
    OnDevice<OnlineState> state(std::vector<OnlineState>(1));
    const cuda::OnlineNormOptions options = {.alpha = 0.4};
    const OnlineNormForwardArgs<Half, float> forward = {.rows = 4,
                                                        .cols = cols,
                                                        .x = x.data(),
                                                        .gain = gain.data(),
                                                        .bias = bias.data(),
                                                        .y = y.data()};
    cuda::OnlineNormForward(forward, state.data(), WithWorkspace(options, forward));
    const OnlineNormBackwardArgs<Half, float> backward = {.rows = 4,
                                                          .cols = cols,
                                                          .dy = dy.data(),
                                                          .x = x.data(),
                                                          .gain = gain.data(),
                                                          .mean = mean.data(),
                                                          .mean_lo = mean_lo.data(),
                                                          .rstd = rstd.data(),
                                                          .offset = offset.data(),
                                                          .deviation = deviation.data(),
                                                          .dx = dx.data(),
                                                          .dgain = dgain.data(),
                                                          .dbias = dbias.data()};
    cuda::OnlineNormBackward(backward, WithWorkspace(options, backward));
    const double u = tests::UnitRoundoff<Half>();
    const std::vector<Half> ys = y.Get(), dxs = dx.Get();
    for (size_t i = 0; i < ys.size(); ++i) {
      EXPECT_NEAR(ToFloat(ys[i]), expected.y[i], u * std::abs(expected.y[i]) + 1e-6);
      EXPECT_NEAR(ToFloat(dxs[i]), expected.dx[i], u * std::abs(expected.dx[i]) + 1e-6);
    }
    // Sums of so few rows in double have the same order of additions.
    EXPECT_TRUE(SameBits(dgain.Get(), expected.dgain));
    EXPECT_TRUE(SameBits(dbias.Get(), expected.dbias));
  }
}

TEST_F(CudaOnlineNormDeviceTest, HalvesAgreeWithFloat) {
  ExpectAgreesWithFloat<bfloat16>();
  ExpectAgreesWithFloat<float16>();
}

TEST_F(CudaOnlineNormDeviceTest, NoCases) {
  const Problem<float> p(0, 3, 0.5);
  const auto out = ApplyOnDevice(p);
  EXPECT_THAT(out.dgain, testing::Each(0.f));
  EXPECT_EQ(out.state_mean, 0);
  EXPECT_EQ(out.state_deviation, 1);
}

TEST_F(CudaOnlineNormDeviceTest, Errors) {
  OnDevice<float> x(std::vector<float>(6)), y(std::vector<float>(6));
  OnDevice<OnlineState> state(std::vector<OnlineState>(1));
  const auto error = [&](OnlineNormForwardArgs<float> args, OnlineState* to, double alpha) {
    args.x = x.data();
    return tests::ErrorOf([&] { cuda::OnlineNormForward(args, to, {.alpha = alpha}); });
  };
  EXPECT_EQ(error({.rows = 2, .cols = 1, .y = y.data()}, state.data(), 0.1),
            "[OnlineNormForward] cols must be at least 2 for the unbiased deviation, got 1");
  EXPECT_EQ(error({.rows = 2, .cols = 3, .y = y.data()}, state.data(), 1.5),
            "[OnlineNormForward] alpha must be in [0, 1], got 1.5");
  EXPECT_EQ(error({.rows = 2, .cols = 3}, state.data(), 0.1),
            "[OnlineNormForward] y must point to 24 bytes, got null");
  EXPECT_EQ(error({.rows = 2, .cols = 3, .y = y.data()}, nullptr, 0.1),
            "[OnlineNormForward] state must point to 16 bytes, got null");
  EXPECT_THAT(error({.rows = 2, .cols = 3, .y = y.data()}, state.data(), 0.1),
              testing::HasSubstr("[OnlineNormForward] workspace must point to "));
}

}  // namespace
}  // namespace planish
