#include "planish/online_norm.h"

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

#include "src/norm/reference.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using tests::ErrorOf;
using tests::Normal;
using tests::SameBits;
using tests::Unset;

using Real = double;
using Complex = std::complex<Real>;

// One case as the equations read, with the state before it a constant. `state` becomes the next.
template <class Scalar>
std::vector<Scalar> ReferenceCase(const std::vector<Scalar>& x, Real alpha, Scalar& mean,
                                  Scalar& deviation) {
  const Scalar n(static_cast<Real>(x.size()));
  internal::ExactSum<Scalar> sum, squares;
  for (const Scalar& value : x) sum += value;
  mean = alpha * (sum.value() / n) + (1 - alpha) * mean;
  for (const Scalar& value : x) squares += (value - mean) * (value - mean);
  deviation = alpha * std::sqrt(squares.value() / (n - Scalar(1))) + (1 - alpha) * deviation;
  std::vector<Scalar> z;
  for (const Scalar& value : x) z.push_back((value - mean) / deviation);
  return z;
}

template <class T>
struct Problem {
  Problem(int64_t r, int64_t c, double alpha_, double mean = 0) : rows(r), cols(c), alpha(alpha_) {
    std::mt19937 random(static_cast<uint32_t>(rows * 1000 + cols));
    x = Normal<T>(rows * cols, random, mean);
    dy = Normal<T>(rows * cols, random);
    gain = Normal<T>(cols, random);
    bias = Normal<T>(cols, random);
  }
  int64_t rows, cols;
  double alpha;
  std::vector<T> x, dy, gain, bias;
};

template <class T>
struct Result : tests::Outputs<T> {
  explicit Result(const Problem<T>& p)
      : tests::Outputs<T>(p.rows * p.cols, p.rows, p.cols),
        offset(p.rows, Unset<T>()),
        deviation(p.rows, Unset<T>()) {}

  std::string DiffersIn(const Result& other) const {
    if (!SameBits(offset, other.offset)) return "offset";
    if (!SameBits(deviation, other.deviation)) return "deviation";
    if (state_mean != other.state_mean) return "state_mean";
    if (state_deviation != other.state_deviation) return "state_deviation";
    return tests::Outputs<T>::DiffersIn(other);
  }

  std::vector<T> offset, deviation;
  double state_mean = 0, state_deviation = 1;
};

template <class T>
OnlineNormForwardArgs<T> ForwardArgs(const Problem<T>& p, Result<T>& out) {
  return {.rows = p.rows,
          .cols = p.cols,
          .x = p.x.data(),
          .gain = p.gain.data(),
          .bias = p.bias.data(),
          .y = out.y.data(),
          .mean = out.mean.data(),
          .mean_lo = out.mean_lo.data(),
          .rstd = out.rstd.data(),
          .offset = out.offset.data(),
          .deviation = out.deviation.data()};
}

template <class T>
OnlineNormBackwardArgs<T> BackwardArgs(const Problem<T>& p, Result<T>& out) {
  return {.rows = p.rows,
          .cols = p.cols,
          .dy = p.dy.data(),
          .x = p.x.data(),
          .gain = p.gain.data(),
          .mean = out.mean.data(),
          .mean_lo = out.mean_lo.data(),
          .rstd = out.rstd.data(),
          .offset = out.offset.data(),
          .deviation = out.deviation.data(),
          .dx = out.dx.data(),
          .dgain = out.dgain.data(),
          .dbias = out.dbias.data()};
}

template <class T>
Result<T> Apply(const Problem<T>& p, const ParallelFor& parallel_for = SerialFor) {
  Result<T> out(p);
  OnlineState state;
  OnlineNormForward<T>(ForwardArgs(p, out), state,
                       {.alpha = p.alpha, .parallel_for = parallel_for});
  OnlineNormBackward<T>(BackwardArgs(p, out), {.alpha = p.alpha, .parallel_for = parallel_for});
  out.state_mean = state.mean;
  out.state_deviation = state.deviation;
  return out;
}

template <class T>
void ExpectAgrees(const Problem<T>& p, const Result<T>& out) {
  // A case's sums have a relative error of a few units in the last place times the root of the
  // number of terms in a lane, 8 at most; mean and deviation carry it on with weights that add to
  // one. 32 units bound all of it; terms of dx are as large as rstd * |g| * (1 + |z|).
  const Real unit = 32 * std::numeric_limits<T>::epsilon();
  Real mean = 0, deviation = 1;
  std::vector<Real> dgain(p.cols), dbias(p.cols), dgain_size(p.cols), dbias_size(p.cols);
  for (int64_t r = 0; r < p.rows; ++r) {
    const std::vector<Real> x(p.x.begin() + r * p.cols, p.x.begin() + (r + 1) * p.cols);
    const Real before_mean = mean, before_deviation = deviation;
    const std::vector<Real> z = ReferenceCase(x, p.alpha, mean, deviation);
    Real size = 0, most_z = 1;
    for (int64_t c = 0; c < p.cols; ++c) {
      size = std::max(size, std::abs(Real{p.gain[c]} * p.dy[r * p.cols + c]));
      most_z = std::max(most_z, std::abs(z[c]));
    }
    for (int64_t c = 0; c < p.cols; ++c) {
      const Real dy = p.dy[r * p.cols + c], gain = p.gain[c];
      ASSERT_NEAR(out.y[r * p.cols + c], gain * z[c] + p.bias[c],
                  unit * (std::abs(gain) * most_z + std::abs(Real{p.bias[c]})));
      dgain[c] += dy * z[c];
      dgain_size[c] += std::abs(dy) * most_z;
      dbias[c] += dy;
      dbias_size[c] += std::abs(dy);
      // A derivative reads the whole case: of a wide one some do.
      if (p.cols > 257 && c % (p.cols / 16) != 0) continue;
      std::vector<Complex> moved(x.begin(), x.end());
      moved[c] += Complex(0, 1e-100);
      Complex moved_mean = before_mean, moved_deviation = before_deviation;
      const auto moved_z = ReferenceCase(moved, p.alpha, moved_mean, moved_deviation);
      Real dx = 0;
      for (int64_t i = 0; i < p.cols; ++i) {
        dx += Real{p.dy[r * p.cols + i]} * p.gain[i] * moved_z[i].imag() / 1e-100;
      }
      ASSERT_NEAR(out.dx[r * p.cols + c], dx, unit * size * most_z * most_z / deviation)
          << r << ", " << c;
    }
  }
  for (int64_t c = 0; c < p.cols; ++c) {
    ASSERT_NEAR(out.dgain[c], dgain[c], unit * dgain_size[c]);
    ASSERT_NEAR(out.dbias[c], dbias[c], unit * dbias_size[c]);
  }
  EXPECT_NEAR(out.state_mean, mean, unit * (1 + std::abs(mean)));
  EXPECT_NEAR(out.state_deviation, deviation, unit * deviation);
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
  // The running mean has to come near the data's before z is of size 1: alpha is. The state is in
  // double, which has the digits that a float's mean lacks.
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

TYPED_TEST(OnlineNormTest, SameBitsOnAnyThreads) {
  // Several waves of cases.
  const Problem<TypeParam> p(3000, 400, 0.05);
  const Result<TypeParam> expected = Apply(p);
  for (const int64_t parts : {2, 3, 7}) {
    EXPECT_EQ(Apply(p, tests::OnThreads(parts)).DiffersIn(expected), "");
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
  const double alphas[] = {1, 0};  // the second case does not move the state
  Result<TypeParam> out(p);
  OnlineState state;
  OnlineNormForward<TypeParam>(ForwardArgs(p, out), state, {.alphas = alphas});
  EXPECT_EQ(out.mean[0], out.mean[1]);
  EXPECT_EQ(out.rstd[0], out.rstd[1]);
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

// The same numbers in both types: results differ by their rounding to 16 bits.
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
  EXPECT_EQ(error({.alpha = 1.5}),
            "[OnlineNormForward] alpha must be between 0 and 1 but has 1.500000");
  const double alphas[] = {0.5, -1};
  EXPECT_EQ(error({.alphas = alphas}),
            "[OnlineNormForward] alphas[1] must be between 0 and 1 but has -1.000000");
  state.deviation = -1;
  EXPECT_EQ(error(),
            "[OnlineNormForward] state.deviation must be finite and at least 0 but has -1.000000");
  state = {};
  args.cols = 1;
  EXPECT_EQ(error(),
            "[OnlineNormForward] cols must be at least 2, for the unbiased deviation but has 1");
  args.cols = 3;
  args.x = nullptr;
  EXPECT_EQ(error(), "[OnlineNormForward] x must point to 24 bytes but has null");
  auto backward = BackwardArgs(p, out);
  backward.dgain = out.dx.data();
  EXPECT_EQ(ErrorOf([&] { OnlineNormBackward<float>(backward); }),
            "[OnlineNormBackward] dgain must not overlap dx but has bytes in common");
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
