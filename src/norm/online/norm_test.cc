#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "planish/online_norm.h"
#include "src/norm/online/testing.h"

namespace planish {
namespace {

using namespace tests::online_norm;  // NOLINT(google-build-using-namespace): helpers
using tests::ErrorOf;
using tests::SameBits;
using tests::Unset;

template <class T>
Result<T> Apply(const Problem<T>& p, const ParallelFor& parallel_for = SerialFor) {
  Result<T> out(p);
  OnlineState state;
  OnlineNormForward<T>(ForwardArgs(p, out), state, p.Options(parallel_for));
  OnlineNormBackward<T>(BackwardArgs(p, out), p.Options(parallel_for));
  out.state_mean = state.mean;
  out.state_deviation = state.deviation;
  return out;
}

template <class T>
class OnlineNormTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(OnlineNormTest, Types);

TYPED_TEST(OnlineNormTest, AgreesWithTheReference) {
  tests::ForEachTarget([](const std::string& target) {
    for (const int64_t cols : tests::Widths()) {
      if (cols == 1) continue;  // has no unbiased deviation
      for (const double alpha : {0.0, 0.1, 0.7, 1.0}) {
        if (cols > 1100 && alpha != 0.7) continue;
        SCOPED_TRACE(testing::Message() << target << ", cols " << cols << ", alpha " << alpha);
        const Problem<TypeParam> p(5, cols, alpha);
        ExpectAgrees(p, Apply(p));
      }
    }
  });
}

TEST(OnlineNormAccuracyTest, FloatIsExactFarFromZero) {
  // alpha = 1 makes the running mean close to the data, so that z is of size 1. The state is in
  // double, because a mean in float would lack digits.
  const Problem<float> p(20, 64, 1.0, 1e4);
  ExpectAgrees(p, Apply(p));
}

TYPED_TEST(OnlineNormTest, OneAtATimeGivesTheSameBits) {
  const Problem<TypeParam> p(37, 33, 0.3);
  const Result<TypeParam> all = Apply(p);
  OnlineState state;
  for (int64_t r = 0; r < p.rows; ++r) {
    Problem<TypeParam> one(1, p.cols, p.alpha);
    std::copy_n(p.x.begin() + r * p.cols, p.cols, one.x.begin());
    one.gain = p.gain;
    one.bias = p.bias;
    Result<TypeParam> out(one);
    OnlineNormForward<TypeParam>(ForwardArgs(one, out), state, {.alpha = p.alpha});
    EXPECT_TRUE(std::equal(out.y.begin(), out.y.end(), all.y.begin() + r * p.cols));
    EXPECT_EQ(out.rstd[0], all.rstd[r]);
  }
  EXPECT_EQ(state.mean, all.state_mean);
  EXPECT_EQ(state.deviation, all.state_deviation);
}

// The statistics of one turn are computed while another is normalized. Bits must equal those of
// cases without a next turn, for whole and partial vectors, both kinds of stores, in place and not.
TYPED_TEST(OnlineNormTest, TurnsGiveTheSameBits) {
  for (const int64_t cols : {5, 20, 60, 500, 512, 1100}) {
    const int64_t few = (int64_t{1} << 14) / cols, rows = 20 * few;  // `few` cases are one turn
    const Problem<TypeParam> p(rows, cols, 0.05);
    tests::ForEachTarget([&](const std::string& target) {
      SCOPED_TRACE(testing::Message() << target << ", cols " << cols);
      std::vector<TypeParam> expected;
      OnlineState expected_state;
      for (int64_t r = 0; r < rows; r += few) {
        Problem<TypeParam> part(std::min(few, rows - r), cols, p.alpha);
        std::copy_n(p.x.begin() + r * cols, part.x.size(), part.x.begin());
        part.gain = p.gain;
        part.bias = p.bias;
        Result<TypeParam> part_out(part);
        OnlineNormForward<TypeParam>(ForwardArgs(part, part_out), expected_state,
                                     {.alpha = p.alpha});
        expected.insert(expected.end(), part_out.y.begin(), part_out.y.end());
      }
      Result<TypeParam> out(p);
      OnlineState state;
      OnlineNormForward<TypeParam>(ForwardArgs(p, out), state, {.alpha = p.alpha});
      EXPECT_EQ(state.mean, expected_state.mean);
      EXPECT_EQ(state.deviation, expected_state.deviation);
      EXPECT_TRUE(SameBits(out.y, expected));
      const tests::NtStores nt_stores;
      std::vector<TypeParam> work = p.x;
      auto args = ForwardArgs(p, out);
      args.x = args.y = work.data();
      OnlineNormForward<TypeParam>(args, state = {}, {.alpha = p.alpha});
      EXPECT_TRUE(SameBits(work, expected));
    });
  }
}

// Narrow and wide cases with both kinds of stores. One thread processes all cases in order; several
// take turns.
TYPED_TEST(OnlineNormTest, SameBitsOnAnyThreads) {
  for (const int64_t cols : {7, 33, 60, 400, 512, 1500}) {
    // Many turns; the last one has one case.
    const int64_t turn = (int64_t{1} << 14) / cols, rows = 36 * turn + 1;
    const Problem<TypeParam> p(rows, cols, 0.05);
    tests::ForEachTarget([&](const std::string& target) {
      SCOPED_TRACE(testing::Message() << target << ", cols " << cols);
      const Result<TypeParam> expected = Apply(p);
      for (const int64_t parts : {2, 3, 7}) {
        EXPECT_EQ(Apply(p, tests::OnThreads(parts)).DiffersIn(expected), "");
      }
      const tests::NtStores nt_stores;
      EXPECT_EQ(Apply(p).DiffersIn(expected), "");
      EXPECT_EQ(Apply(p, tests::OnThreads(3)).DiffersIn(expected), "");
    });
  }
}

TYPED_TEST(OnlineNormTest, InPlace) {
  const Problem<TypeParam> p(9, 50, 0.5);
  const Result<TypeParam> expected = Apply(p);
  Problem<TypeParam> work = p;
  Result<TypeParam> out(p);
  auto forward = ForwardArgs(work, out);
  forward.y = work.x.data();
  OnlineState state;
  OnlineNormForward<TypeParam>(forward, state, {.alpha = p.alpha});
  EXPECT_EQ(work.x, expected.y);
  work.x = p.x;
  auto backward = BackwardArgs(work, out);
  backward.dx = work.dy.data();
  OnlineNormBackward<TypeParam>(backward, {.alpha = p.alpha});
  EXPECT_EQ(work.dy, expected.dx);
}

TYPED_TEST(OnlineNormTest, AlphaOfEachCase) {
  const Problem<TypeParam> p(2, 10, 0);
  const double alphas[] = {1, 0};  // the second case does not change the state
  Result<TypeParam> out(p);
  OnlineState state;
  OnlineNormForward<TypeParam>(ForwardArgs(p, out), state, {.alphas = alphas});
  EXPECT_EQ(out.mean[0], out.mean[1]);
  EXPECT_EQ(out.rstd[0], out.rstd[1]);
}

std::vector<double> Alphas(const AlphaSchedule& schedule, int64_t first, int64_t count) {
  std::vector<double> alphas(count);
  FillAlphas(schedule, first, count, alphas.data());
  return alphas;
}

TYPED_TEST(OnlineNormTest, SchedulesAgreeWithTheReference) {
  tests::ForEachTarget([](const std::string& target) {
    for (const AlphaRule rule : {AlphaRule::kConstant, AlphaRule::kInverse, AlphaRule::kWarmup}) {
      for (const int64_t cols : {2, 33, 300}) {
        SCOPED_TRACE(testing::Message()
                     << target << ", rule " << static_cast<int>(rule) << ", cols " << cols);
        Problem<TypeParam> p(7, cols, 0);
        p.alphas = Alphas({.rule = rule, .alpha = 0.3}, 1, p.rows);
        ExpectAgrees(p, Apply(p));
      }
    }
  });
}

// Sums all cases instead of updating a state. mu_t is known before s_t.
TYPED_TEST(OnlineNormTest, InverseScheduleAveragesAllCases) {
  Problem<TypeParam> p(50, 40, 0, 3);
  p.alphas = Alphas({.rule = AlphaRule::kInverse}, 1, p.rows);
  const auto out = Apply(p);
  internal::ExactSum<Real> sum, deviations;
  for (int64_t r = 0; r < p.rows; ++r) {
    const auto n = static_cast<Real>(r + 1), cols = static_cast<Real>(p.cols);
    for (int64_t c = 0; c < p.cols; ++c) sum += Real{p.x[r * p.cols + c]};
    const Real mean = sum.value() / (n * cols);
    internal::ExactSum<Real> squares;
    for (int64_t c = 0; c < p.cols; ++c) {
      squares += (Real{p.x[r * p.cols + c]} - mean) * (Real{p.x[r * p.cols + c]} - mean);
    }
    deviations += std::sqrt(squares.value() / (cols - 1));
    // As in ExpectAgrees: a state is an average of statistics that have a few ulp each.
    const Real unit = 32 * std::numeric_limits<TypeParam>::epsilon();
    EXPECT_NEAR(out.mean[r], mean, unit * (1 + std::abs(mean)));
    EXPECT_NEAR(out.rstd[r] * deviations.value() / n, 1, unit);
  }
}

TEST(AlphaScheduleTest, HasItsEquations) {
  using testing::ElementsAre;
  EXPECT_THAT(Alphas({.alpha = 0.25}, 3, 2), ElementsAre(0.25, 0.25));
  EXPECT_THAT(Alphas({.rule = AlphaRule::kInverse}, 1, 4), ElementsAre(1, 0.5, 1 / 3., 0.25));
  EXPECT_THAT(Alphas({.rule = AlphaRule::kWarmup, .alpha = 0.3}, 1, 5),
              ElementsAre(1, 0.5, 1 / 3., 0.3, 0.3));
  EXPECT_THAT(Alphas({.rule = AlphaRule::kInverse}, int64_t{1} << 40, 1),
              ElementsAre(std::ldexp(1, -40)));
  EXPECT_THAT(Alphas({}, 1, 0), ElementsAre());
}

TEST(AlphaScheduleTest, Errors) {
  double alphas[2] = {7, 7};
  const auto error = [&](const AlphaSchedule& schedule, int64_t first, int64_t count, double* to) {
    return ErrorOf([&] { FillAlphas(schedule, first, count, to); });
  };
  EXPECT_EQ(error({.rule = AlphaRule{9}}, 1, 2, alphas),
            "[FillAlphas] schedule.rule must be a value of planish::AlphaRule, got 9");
  EXPECT_EQ(error({.alpha = -1}, 1, 2, alphas),
            "[FillAlphas] schedule.alpha must be in [0, 1], got -1");
  EXPECT_EQ(error({}, 0, 2, alphas),
            "[FillAlphas] first must be in [1, 9223372036854775805], got 0");
  EXPECT_EQ(error({}, INT64_MAX, 2, alphas),
            "[FillAlphas] first must be in [1, 9223372036854775805], got 9223372036854775807");
  EXPECT_EQ(error({}, 1, -1, alphas), "[FillAlphas] count must be at least 0, got -1");
  EXPECT_EQ(error({}, 1, 2, nullptr), "[FillAlphas] alphas must point to 2 doubles, got null");
  EXPECT_THAT(alphas, testing::Each(7));
}

TYPED_TEST(OnlineNormTest, ConstantCases) {
  Problem<TypeParam> p(3, 6, 0.5);
  std::ranges::fill(p.x, TypeParam{4});
  const auto out = Apply(p);
  // mu is 2, 3, 3.5; s^2 = 6/5 * (4 - mu)^2, never 0.
  EXPECT_EQ(out.mean[0], 2);
  EXPECT_EQ(out.mean[2], static_cast<TypeParam>(3.5));
  ExpectAgrees(p, out);
  p.alpha = 1;
  EXPECT_THAT(Apply(p).y, testing::Each(testing::IsNan()));
}

// Equal values in both types: results differ by their rounding to 16 bits.
template <class Half>
void ExpectAgreesWithFloat() {
  Problem<float> p(4, 40, 0.4);
  const auto rounded = [](std::vector<float>& values) {
    std::vector<Half> halves;
    for (float& value : values) {
      halves.push_back(tests::FromDouble<Half>(static_cast<double>(value)));
      value = ToFloat(halves.back());
    }
    return halves;
  };
  const std::vector<Half> x = rounded(p.x), dy = rounded(p.dy);
  const auto expected = Apply(p);
  auto out = expected;
  std::ranges::fill(out.dgain, Unset<float>());
  std::ranges::fill(out.dbias, Unset<float>());
  std::vector<Half> y(x.size()), dx(x.size());
  OnlineState state;
  OnlineNormForward<Half, float>({.rows = 4,
                                  .cols = 40,
                                  .x = x.data(),
                                  .gain = p.gain.data(),
                                  .bias = p.bias.data(),
                                  .y = y.data()},
                                 state, {.alpha = 0.4});
  OnlineNormBackward<Half, float>({.rows = 4,
                                   .cols = 40,
                                   .dy = dy.data(),
                                   .x = x.data(),
                                   .gain = p.gain.data(),
                                   .mean = out.mean.data(),
                                   .mean_lo = out.mean_lo.data(),
                                   .rstd = out.rstd.data(),
                                   .offset = out.offset.data(),
                                   .deviation = out.deviation.data(),
                                   .dx = dx.data(),
                                   .dgain = out.dgain.data(),
                                   .dbias = out.dbias.data()},
                                  {.alpha = 0.4});
  const double u = tests::UnitRoundoff<Half>();
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_NEAR(ToFloat(y[i]), expected.y[i], u * std::abs(expected.y[i]) + 1e-6);
    EXPECT_NEAR(ToFloat(dx[i]), expected.dx[i], u * std::abs(expected.dx[i]) + 1e-6);
  }
  EXPECT_TRUE(SameBits(out.dgain, expected.dgain));
  EXPECT_TRUE(SameBits(out.dbias, expected.dbias));
}

TEST(OnlineNormHalfTest, AgreesWithFloat) {
  ExpectAgreesWithFloat<bfloat16>();
  ExpectAgreesWithFloat<float16>();
}

TEST(OnlineNormErrorTest, Arguments) {
  const Problem<float> p(2, 3, 0.5);
  Result<float> out(p);
  OnlineState state;
  auto args = ForwardArgs(p, out);
  const auto error = [&](const OnlineNormOptions& options = {}) {
    return ErrorOf([&] { OnlineNormForward<float>(args, state, options); });
  };
  EXPECT_EQ(error(), "");
  EXPECT_EQ(error({.alpha = 1.5}), "[OnlineNormForward] alpha must be in [0, 1], got 1.5");
  const double alphas[] = {0.5, -1};
  EXPECT_EQ(error({.alphas = alphas}), "[OnlineNormForward] alphas[1] must be in [0, 1], got -1");
  state.deviation = -1;
  EXPECT_EQ(error(), "[OnlineNormForward] state.deviation must be finite and at least 0, got -1");
  state = {};
  args.cols = 1;
  EXPECT_EQ(error(),
            "[OnlineNormForward] cols must be at least 2 for the unbiased deviation, got 1");
  args.cols = 3;
  args.x = nullptr;
  EXPECT_EQ(error(), "[OnlineNormForward] x must point to 24 bytes, got null");
  auto backward = BackwardArgs(p, out);
  backward.dgain = out.dx.data();
  EXPECT_EQ(ErrorOf([&] { OnlineNormBackward<float>(backward); }),
            "[OnlineNormBackward] dgain must not overlap dx, got 12 bytes in common");
}

TEST(OnlineNormErrorTest, NoCases) {
  const Problem<float> p(0, 3, 0.5);
  Result<float> out(p);
  std::ranges::fill(out.dgain, 7.f);
  OnlineState state;
  OnlineNormForward<float>(ForwardArgs(p, out), state);
  OnlineNormBackward<float>(BackwardArgs(p, out));
  EXPECT_THAT(out.dgain, testing::Each(0.f));
  EXPECT_EQ(state.mean, 0);
}

}  // namespace
}  // namespace planish
