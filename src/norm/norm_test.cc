#include "planish/norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/norm/recipe.h"
#include "src/norm/reference.h"
#include "src/norm/rows.h"

namespace planish {
namespace {

using internal::Output;
using internal::Recipe;
using testing::Each;
using testing::IsNan;

constexpr Recipe RecipeFor(Norm norm) {
  return internal::Visit(norm, []<Recipe kRecipe>() { return kRecipe; });
}
constexpr Recipe kLayerNorm = RecipeFor(Norm::kLayer);
constexpr Recipe kLayerNormSimple = RecipeFor(Norm::kLayerSimple);
constexpr Recipe kDetachBoth = RecipeFor(Norm::kDetach);
constexpr Recipe kDetachMean = RecipeFor(Norm::kDetachMean);
constexpr Recipe kDetachScale = RecipeFor(Norm::kDetachDeviation);
constexpr Recipe kRms = RecipeFor(Norm::kRms);

using Real = long double;  // of the reference

testing::AssertionResult Near(Real value, Real expected, Real tolerance) {
  const Real error = std::abs(value - expected);
  if (error <= tolerance) return testing::AssertionSuccess();  // not so if anything is NaN
  return testing::AssertionFailure()
         << value << " is " << error << " from " << expected << ", more than " << tolerance;
}

template <class T>
std::vector<T> Random(int64_t n, std::mt19937& random, double mean = 0, double deviation = 1) {
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<T> values(static_cast<size_t>(n));
  for (T& value : values) value = static_cast<T>(normal(random));
  return values;
}

// A problem; `gain` and `bias` may be empty, which stands for null.
template <class T>
struct Problem {
  Problem(int64_t r, int64_t c, bool with_gain = true, bool with_bias = true, double mean = 0,
          double deviation = 1)
      : rows(r), cols(c) {
    std::mt19937 random(static_cast<uint32_t>(1 + 1000 * rows + cols));
    x = Random<T>(rows * cols, random, mean, deviation);
    dy = Random<T>(rows * cols, random);
    if (with_gain) gain = Random<T>(cols, random);
    if (with_bias) bias = Random<T>(cols, random);
  }
  int64_t rows, cols;
  double eps = 1e-5;
  std::vector<T> x, dy, gain, bias;
};

// All outputs, filled with NaN so that one left unwritten shows.
template <class T>
struct Result {
  explicit Result(const Problem<T>& p)
      : y(p.x.size(), kUnset),
        mean(p.rows, kUnset),
        mean_lo(p.rows, kUnset),
        rstd(p.rows, kUnset),
        dx(p.x.size(), kUnset),
        dgain(p.cols, kUnset),
        dbias(p.cols, kUnset) {}
  static constexpr T kUnset = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> y, mean, mean_lo, rstd, dx, dgain, dbias;

  bool operator==(const Result&) const = default;  // to the bit but for the sign of zero
};

template <class T>
const T* OrNull(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

template <class T>
NormForwardArgs<T> ForwardArgs(const Problem<T>& p, Result<T>& out) {
  return {.rows = p.rows,
          .cols = p.cols,
          .x = p.x.data(),
          .gain = OrNull(p.gain),
          .bias = OrNull(p.bias),
          .y = out.y.data(),
          .mean = out.mean.data(),
          .mean_lo = out.mean_lo.data(),
          .rstd = out.rstd.data()};
}

template <class T>
NormBackwardArgs<T> BackwardArgs(const Problem<T>& p, Result<T>& out, bool affine = true) {
  return {.rows = p.rows,
          .cols = p.cols,
          .dy = p.dy.data(),
          .x = p.x.data(),
          .gain = OrNull(p.gain),
          .mean = out.mean.data(),
          .mean_lo = out.mean_lo.data(),
          .rstd = out.rstd.data(),
          .dx = out.dx.data(),
          .dgain = affine ? out.dgain.data() : nullptr,
          .dbias = affine ? out.dbias.data() : nullptr};
}

template <class T>
Result<T> Apply(Norm norm, const Problem<T>& p, const ParallelFor& parallel_for = {}) {
  Result<T> out(p);
  const NormOptions options{.eps = p.eps, .parallel_for = parallel_for};
  NormForward<T>(norm, ForwardArgs(p, out), options);
  NormBackward<T>(norm, BackwardArgs(p, out, norm == Norm::kLayer || norm == Norm::kRms), options);
  return out;
}

// Row r of x for the reference. Norms that centre do not see a shift, but the digits of the
// reference do: the last element is taken off all, which loses nothing beside the deviations.
template <Recipe kRecipe, class T>
std::vector<Real> ReferenceRow(const Problem<T>& p, int64_t r) {
  std::vector<Real> x(p.x.begin() + r * p.cols, p.x.begin() + (r + 1) * p.cols);
  if (kRecipe.centre) {
    for (const Real last = x.back(); Real & value : x) value -= last;
  }
  return x;
}

// Whether every output agrees with the reference, within the rounding errors that the arithmetic
// can make. Unit roundoff u = 2^-24 for float, 2^-53 for double.
template <Recipe kRecipe, class T>
void ExpectAgreesWithReference(const Problem<T>& p, const Result<T>& out) {
  SCOPED_TRACE(testing::Message() << p.rows << " x " << p.cols << " gain " << !p.gain.empty()
                                  << " bias " << !p.bias.empty());
  const Real u = std::numeric_limits<T>::epsilon() / 2;
  // Sums of cols doubles: each addition has a relative error of at most 2^-53. It is the relative
  // error of rstd, and the error of the mean in standard deviations.
  const Real moments = static_cast<Real>(p.cols) * 0x1p-53L;
  // A mean over a row: T is summed over 64 columns in at least two lanes.
  const Real sum_error = static_cast<Real>(std::min(p.cols, internal::kChunk) / 2) * u + moments;

  const auto cols = static_cast<size_t>(p.cols);
  const std::vector<Real> gain =
      p.gain.empty() ? std::vector<Real>(cols, 1) : std::vector<Real>(p.gain.begin(), p.gain.end());
  const std::vector<Real> bias =
      p.bias.empty() ? std::vector<Real>(cols, 0) : std::vector<Real>(p.bias.begin(), p.bias.end());
  // Each derivative along x costs a row: of long rows, every step-th column.
  const size_t step = std::max<size_t>(1, cols / 32);
  std::vector<Real> dgain(cols), dgain_error(cols), dbias(cols), dbias_error(cols);
  for (int64_t r = 0; r < p.rows; ++r) {
    const int64_t begin = r * p.cols;
    const std::vector<Real> x = ReferenceRow<kRecipe>(p, r);
    const std::vector<Real> dy(p.dy.begin() + begin, p.dy.begin() + begin + p.cols);
    const std::vector<Real> xhat = internal::ReferenceXhat<kRecipe>(x, p.eps);
    const Real rstd = out.rstd[r];
    Real mean = 0, mean_g = 0, mean_g_xhat = 0;  // the last two of magnitudes
    for (size_t c = 0; c < cols; ++c) {
      mean += x[c] / p.cols;
      mean_g += std::abs(gain[c] * dy[c]) / p.cols;
      mean_g_xhat += std::abs(gain[c] * dy[c] * xhat[c]) / p.cols;
    }
    if (kRecipe.centre) {
      // mean_lo is rounded to T, and the mean that it completes was summed in double.
      const Real shift = p.x[begin + p.cols - 1];
      EXPECT_TRUE(Near((out.mean[r] - shift) + out.mean_lo[r], mean,
                       u * std::abs(out.mean_lo[r]) + 2 * moments / rstd));
      EXPECT_LE(std::abs(out.mean_lo[r]), u * std::abs(out.mean[r]));
    }
    for (size_t c = 0; c < cols; ++c) {
      const Real y = internal::ReferenceOutput<kRecipe>(xhat[c], gain[c], bias[c]);
      // xhat: two subtractions, a product, rstd and mean_lo rounded to T.
      const Real lo = kRecipe.centre ? std::abs(u * out.mean_lo[r] * rstd) : 0;
      const Real xhat_error = 4 * u * std::abs(xhat[c]) + moments * (1 + std::abs(xhat[c])) + lo;
      // Then the product with gain and the sum with bias.
      const Real y_error =
          std::abs(gain[c]) * (xhat_error + u * std::abs(xhat[c])) + u * std::abs(y);
      ASSERT_TRUE(Near(out.y[begin + c], y, y_error)) << "y of row " << r << ", column " << c;

      // Terms and their sums in T over 32 rows; those in double; the total rounded.
      const Real column_error = static_cast<Real>(internal::kGroupRows + 2) * u + moments;
      const Real dgain_term = internal::ReferenceDgain<kRecipe>(xhat[c], gain[c], bias[c], dy[c]);
      const Real dbias_term = internal::ReferenceDbias<kRecipe>(xhat[c], gain[c], bias[c], dy[c]);
      dgain[c] += dgain_term;
      dgain_error[c] += column_error * std::abs(dgain_term) + xhat_error * std::abs(dy[c]);
      dbias[c] += dbias_term;
      dbias_error[c] += column_error * std::abs(dbias_term);
    }
    for (size_t c = 0; c < cols; c += step) {
      const Real dx = internal::ReferenceDx<kRecipe>(x, gain, dy, p.eps, c);
      // g and xhat and their product before the sums; two subtractions, two products, rstd after.
      const Real error =
          rstd * (5 * u * std::abs(gain[c] * dy[c]) + (sum_error + 6 * u) * mean_g +
                  (sum_error + 16 * u + 2 * moments) * (std::abs(xhat[c]) + moments) *
                      (mean_g_xhat + moments * mean_g));
      ASSERT_TRUE(Near(out.dx[begin + c], dx, error)) << "dx of row " << r << ", column " << c;
    }
  }
  if (kRecipe.output != Output::kAffine) return;
  for (size_t c = 0; c < cols; ++c) {
    ASSERT_TRUE(Near(out.dgain[c], dgain[c], dgain_error[c])) << "dgain, column " << c;
    ASSERT_TRUE(Near(out.dbias[c], dbias[c], dbias_error[c])) << "dbias, column " << c;
  }
}

template <class T>
class NormTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(NormTest, Types);

std::vector<int64_t> Widths() {
  std::vector<int64_t> widths;
  for (int64_t c = 1; c <= 67; ++c) widths.push_back(c);
  for (int64_t c :
       {127, 128, 129, 255, 256, 257, 768, 769, 1000, 1023, 1024, 1025, 4095, 4096, 4097}) {
    widths.push_back(c);
  }
  return widths;
}

TYPED_TEST(NormTest, AgreesWithReferenceForEveryWidth) {
  for (const int64_t cols : Widths()) {
    for (const int64_t rows : {1, 2, 3, 7}) {
      const Problem<TypeParam> p(rows, cols);
      ExpectAgreesWithReference<kLayerNorm>(p, Apply(Norm::kLayer, p));
    }
  }
}

TYPED_TEST(NormTest, AgreesWithReferenceForManyRows) {
  // 64 rows are two groups; 3000 narrow ones several blocks, the last one short.
  for (const auto& [rows, cols] : {std::pair{64, 1}, {64, 33}, {64, 257}, {3000, 5}, {33, 1000}}) {
    const Problem<TypeParam> p(rows, cols);
    ExpectAgreesWithReference<kLayerNorm>(p, Apply(Norm::kLayer, p));
  }
}

TYPED_TEST(NormTest, GainAndBiasAreOptional) {
  for (const int64_t cols : {1, 7, 64, 769}) {
    for (const bool gain : {false, true}) {
      for (const bool bias : {false, true}) {
        const Problem<TypeParam> p(3, cols, gain, bias);
        ExpectAgreesWithReference<kLayerNorm>(p, Apply(Norm::kLayer, p));
      }
    }
  }
}

TYPED_TEST(NormTest, SimpleAgreesWithReference) {
  for (const int64_t cols : Widths()) {
    const Problem<TypeParam> p(3, cols, false, false);
    const auto out = Apply(Norm::kLayerSimple, p);
    ExpectAgreesWithReference<kLayerNormSimple>(p, out);
  }
}

TYPED_TEST(NormTest, EveryRecipeAgreesWithReference) {
  for (const int64_t cols : Widths()) {
    const Problem<TypeParam> p(3, cols), plain(3, cols, false, false);
    ExpectAgreesWithReference<kRms>(p, Apply(Norm::kRms, p));
    ExpectAgreesWithReference<kDetachBoth>(plain, Apply(Norm::kDetach, plain));
    ExpectAgreesWithReference<kDetachMean>(plain, Apply(Norm::kDetachMean, plain));
    ExpectAgreesWithReference<kDetachScale>(plain, Apply(Norm::kDetachDeviation, plain));
  }
}

// The reference stops gradients: with both stopped dx is rstd * dy, not LayerNorm's.
TEST(ReferenceTest, StopsGradients) {
  const std::vector<Real> x = {1, 2, 4}, gain = {1, 1, 1}, dy = {1, 0, 0};
  const Real rstd = 1 / std::sqrt(14.0L / 9);  // the variance of 1, 2, 4
  EXPECT_TRUE(Near(internal::ReferenceDx<kDetachBoth>(x, gain, dy, 0, 0), rstd, 1e-18L));
  EXPECT_TRUE(Near(internal::ReferenceDx<kDetachBoth>(x, gain, dy, 0, 1), 0, 1e-18L));
  EXPECT_TRUE(Near(internal::ReferenceDx<kDetachScale>(x, gain, dy, 0, 0), rstd * 2 / 3, 1e-18L));
  EXPECT_TRUE(Near(internal::ReferenceDx<kDetachScale>(x, gain, dy, 0, 1), -rstd / 3, 1e-18L));
  // xhat_0^2 = (16/9) / (14/9) = 8/7, so that mean(g * xhat) * xhat_0 = 8/21.
  EXPECT_TRUE(Near(internal::ReferenceDx<kDetachMean>(x, gain, dy, 0, 0), rstd * 13 / 21, 1e-18L));
  EXPECT_TRUE(
      Near(internal::ReferenceDx<kLayerNormSimple>(x, gain, dy, 0, 0), rstd * 2 / 7, 1e-18L));
}

// Numbers worked out by hand, which share nothing with the reference.
TYPED_TEST(NormTest, WorkedExample) {
  Problem<TypeParam> p(1, 4);
  p.x = {2, 4, 6, 8};  // mean 5, variance 5
  p.gain = {1, 2, 3, 4};
  p.bias = {10, 20, 30, 40};
  p.dy = {1, 0, 0, 0};
  p.eps = 0;
  const auto out = Apply(Norm::kLayer, p);
  const double s = 1 / std::sqrt(5.0);
  const double tolerance = 40 * 4 * std::numeric_limits<TypeParam>::epsilon();  // 4 ulps of 40
  const double y[] = {10 - 3 * s, 20 - 2 * s, 30 + 3 * s, 40 + 12 * s};
  // g = (1, 0, 0, 0), mean(g) = 1/4, mean(g * xhat) = -3s/4, and s^2 = 1/5:
  const double dx[] = {s * 0.3, s * -0.4, s * -0.1, s * 0.2};
  for (int c = 0; c < 4; ++c) {
    EXPECT_TRUE(Near(out.y[c], y[c], tolerance));
    EXPECT_TRUE(Near(out.dx[c], dx[c], tolerance / 40));
  }
  EXPECT_EQ(out.mean[0], 5);
  EXPECT_EQ(out.mean_lo[0], 0);
  EXPECT_TRUE(Near(out.rstd[0], s, tolerance / 40));
  EXPECT_TRUE(Near(out.dgain[0], -3 * s, tolerance / 40));
  EXPECT_THAT(out.dbias, testing::ElementsAre(1, 0, 0, 0));
}

// The project's promise for floats, 5e-7. Four roundings of 2^-24 make 2.4e-7 of it.
void ExpectExactXhat(const Problem<float>& p, const Result<float>& out) {
  for (int64_t r = 0; r < p.rows; ++r) {
    const std::vector<Real> xhat =
        internal::ReferenceXhat<kLayerNormSimple>(ReferenceRow<kLayerNormSimple>(p, r), p.eps);
    for (int64_t c = 0; c < p.cols; ++c) {
      ASSERT_TRUE(
          Near(out.y[r * p.cols + c], xhat[c], 5e-7L * std::max<Real>(1, std::abs(xhat[c]))))
          << "row " << r << ", column " << c;
    }
  }
}

TEST(NormAccuracyTest, FloatIsExactAtAnyMean) {
  for (const double mean : {1.0, -1e2, 1e4, 1e6, -1e7, 1e7}) {
    for (const int64_t cols : {2, 33, 256, 1000, 1024, 65536}) {
      SCOPED_TRACE(testing::Message() << "mean " << mean << ", cols " << cols);
      const Problem<float> p(2, cols, false, false, mean);
      const auto out = Apply(Norm::kLayerSimple, p);
      ExpectExactXhat(p, out);
      if (cols <= 1024) ExpectAgreesWithReference<kLayerNormSimple>(p, out);
    }
  }
}

TEST(NormAccuracyTest, DoubleIsExactAtAnyMean) {
  for (const double mean : {1e4, 1e7, -1e15}) {
    const Problem<double> p(2, 1000, true, true, mean, 10);
    ExpectAgreesWithReference<kLayerNorm>(p, Apply(Norm::kLayer, p));
  }
}

TEST(NormAccuracyTest, FloatSurvivesAnOutlierInFront) {
  // Moments are taken about the first element: the worst row has it far from all others.
  for (const float outlier : {1e4f, -1e8f, 1e20f}) {
    Problem<float> p(1, 4096, false, false);
    p.x[0] = outlier;
    ExpectAgreesWithReference<kLayerNormSimple>(p, Apply(Norm::kLayerSimple, p));
    // A longer row cancels more.
    Problem<float> longer(1, 1 << 20, false, false);
    longer.x[0] = outlier;
    ExpectExactXhat(longer, Apply(Norm::kLayerSimple, longer));
  }
}

TYPED_TEST(NormTest, AnyScale) {
  for (const double scale : {1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30}) {
    for (const double eps : {0.0, 1e-5}) {
      Problem<TypeParam> p(3, 100, true, true, 3 * scale, scale);
      p.eps = eps;
      ExpectAgreesWithReference<kLayerNorm>(p, Apply(Norm::kLayer, p));
    }
  }
}

TEST(NormAccuracyTest, DoubleOutOfRangeIsNan) {
  // The squares overflow; the third row stays clear of infinity minus infinity, too.
  Problem<double> p(3, 10, false, false);
  for (int c = 0; c < 10; ++c) p.x[c] *= 1e200;
  for (int c = 0; c < 10; ++c) p.x[20 + c] = c % 2 ? 1e160 : -1e160;
  const auto out = Apply(Norm::kLayerSimple, p);
  for (int c = 0; c < 10; ++c) {
    EXPECT_TRUE(std::isnan(out.y[c]));
    EXPECT_TRUE(std::isfinite(out.y[10 + c]));
    EXPECT_TRUE(std::isnan(out.y[20 + c]));
  }
}

TYPED_TEST(NormTest, ConstantRowGivesBias) {
  for (const double constant : {0.0, 1.0, 1234.567, -1e6, 16777217.0, 1e30, 1e-30, -3e38}) {
    for (const int64_t cols : {1, 2, 3, 7, 33, 1000}) {
      Problem<TypeParam> p(2, cols);
      std::ranges::fill(p.x, static_cast<TypeParam>(constant));
      const auto out = Apply(Norm::kLayer, p);
      for (int64_t i = 0; i < 2 * cols; ++i) ASSERT_EQ(out.y[i], p.bias[i % cols]) << constant;
      EXPECT_THAT(out.dgain, Each(TypeParam{0}));
      EXPECT_THAT(out.mean, Each(static_cast<TypeParam>(constant)));
      EXPECT_THAT(out.mean_lo, Each(TypeParam{0}));
      ExpectAgreesWithReference<kLayerNorm>(p, out);
    }
  }
}

TYPED_TEST(NormTest, ConstantRowWithoutEpsIsNan) {
  Problem<TypeParam> p(1, 5);
  p.eps = 0;
  std::ranges::fill(p.x, TypeParam{2});
  EXPECT_THAT(Apply(Norm::kLayer, p).y, Each(IsNan()));
}

TYPED_TEST(NormTest, OneColumnHasNoGradient) {
  const Problem<TypeParam> p(5, 1);
  const auto out = Apply(Norm::kLayer, p);
  EXPECT_THAT(out.y, Each(p.bias[0]));
  EXPECT_THAT(out.dx, Each(TypeParam{0}));
  EXPECT_THAT(out.dgain, Each(TypeParam{0}));
}

TYPED_TEST(NormTest, NoRows) {
  const Problem<TypeParam> p(0, 9);
  const auto out = Apply(Norm::kLayer, p);
  EXPECT_THAT(out.dgain, Each(TypeParam{0}));
  EXPECT_THAT(out.dbias, Each(TypeParam{0}));
}

TYPED_TEST(NormTest, NoColumns) {
  const Problem<TypeParam> p(3, 0);
  auto out = Apply(Norm::kLayer, p);
  EXPECT_THAT(out.mean, Each(IsNan()));
  std::ranges::fill(out.rstd, TypeParam{1});  // to see it written
  NormForward<TypeParam>(Norm::kLayer, ForwardArgs(p, out));
  EXPECT_THAT(out.rstd, Each(IsNan()));
}

TYPED_TEST(NormTest, NanAndInfinityStayInTheirRow) {
  const auto inf = std::numeric_limits<TypeParam>::infinity();
  const auto nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for (const int64_t cols : {2, 9, 100}) {
    const Problem<TypeParam> clean(9, cols);
    Problem<TypeParam> p = clean;
    const auto put = [&](int64_t r, int64_t c, TypeParam value) { p.x[r * cols + c] = value; };
    put(1, 0, nan);
    put(3, cols - 1, nan);
    put(4, 0, inf);
    put(5, cols - 1, -inf);
    put(7, 0, inf);
    put(7, 1, -inf);
    const auto expected = Apply(Norm::kLayer, clean), out = Apply(Norm::kLayer, p);
    for (int64_t r = 0; r < 9; ++r) {
      const bool bad = r == 1 || r == 3 || r == 4 || r == 5 || r == 7;
      EXPECT_EQ(std::isnan(out.rstd[r]), bad);
      for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
        if (bad) {
          EXPECT_TRUE(std::isnan(out.y[i]) && std::isnan(out.dx[i])) << r;
        } else {
          EXPECT_TRUE(out.y[i] == expected.y[i] && out.dx[i] == expected.dx[i]) << r;
        }
      }
    }
    EXPECT_THAT(out.dgain, Each(IsNan()));  // a sum over all rows
    EXPECT_EQ(out.dbias, expected.dbias);   // which does not read x
  }
}

// Calls its task with `parts` ranges, in an order that begins in the middle.
ParallelFor SplitIn(int64_t parts, int* calls) {
  return [parts, calls](int64_t begin, int64_t end, int64_t grain, RangeTask task) {
    ++*calls;
    EXPECT_GE(grain, 1);
    const int64_t n = end - begin;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t part = (i * 2 + parts / 2) % parts;  // each once where parts is odd
      const int64_t at = parts % 2 ? part : parts - 1 - i;
      task(begin + at * n / parts, begin + (at + 1) * n / parts);
    }
  };
}

TYPED_TEST(NormTest, SameBitsForEverySplit) {
  // 300 rows of 1000: forward rows and backward blocks are split; 2100 rows of 600: also the
  // columns of the last reduction.
  for (const auto& [rows, cols] : {std::pair{300, 1000}, {2100, 600}, {20000, 7}}) {
    const Problem<TypeParam> p(rows, cols);
    const auto expected = Apply(Norm::kLayer, p);
    for (const int64_t parts : {1, 2, 3, 7, 64, 1001}) {
      int calls = 0;
      EXPECT_TRUE(Apply(Norm::kLayer, p, SplitIn(parts, &calls)) == expected)
          << rows << " x " << cols << " in " << parts;
      EXPECT_GE(calls, 2);
    }
  }
}

TYPED_TEST(NormTest, SameBitsOnThreads) {
  const Problem<TypeParam> p(500, 300);
  const ParallelFor threads = [](int64_t begin, int64_t end, int64_t, RangeTask task) {
    std::vector<std::thread> pool;
    for (int64_t i = begin; i < end; i += 3) {
      pool.emplace_back([=] { task(i, std::min(i + 3, end)); });
    }
    for (std::thread& thread : pool) thread.join();
  };
  EXPECT_TRUE(Apply(Norm::kLayer, p, threads) == Apply(Norm::kLayer, p));
}

TYPED_TEST(NormTest, SmallWorkStaysOnTheCallingThread) {
  const Problem<TypeParam> p(4, 1000);
  int calls = 0;
  Apply(Norm::kLayer, p, SplitIn(2, &calls));
  EXPECT_EQ(calls, 0);
}

TYPED_TEST(NormTest, InPlaceGivesTheSameBits) {
  for (const int64_t cols : {1, 5, 64, 1000}) {
    const Problem<TypeParam> p(40, cols);
    const auto expected = Apply(Norm::kLayer, p);
    Problem<TypeParam> work = p;
    Result<TypeParam> out(p);
    auto backward = BackwardArgs(work, out);
    auto forward = ForwardArgs(work, out);
    forward.y = work.x.data();
    NormForward<TypeParam>(Norm::kLayer, forward);
    EXPECT_EQ(work.x, expected.y);
    work.x = p.x;
    backward.dx = work.dy.data();
    NormBackward<TypeParam>(Norm::kLayer, backward);
    EXPECT_EQ(work.dy, expected.dx);
    EXPECT_EQ(out.dgain, expected.dgain);
    EXPECT_EQ(out.dbias, expected.dbias);
  }
}

TYPED_TEST(NormTest, ARowDependsOnItselfAlone) {
  // Alone, and at every offset from an aligned address.
  for (const int64_t cols : {1, 3, 17, 64, 1000}) {
    Problem<TypeParam> p(16, cols);
    const auto all = Apply(Norm::kLayer, p);
    for (int64_t r = 0; r < p.rows; ++r) {
      std::vector<TypeParam> x(cols + 16), dy(cols + 16), y(cols + 16), dx(cols + 16);
      std::copy_n(p.x.begin() + r * cols, cols, x.begin() + r);
      std::copy_n(p.dy.begin() + r * cols, cols, dy.begin() + r);
      Result<TypeParam> one(p);
      auto forward = ForwardArgs(p, one);
      forward.rows = 1;
      forward.x = x.data() + r;
      forward.y = y.data() + r;
      NormForward<TypeParam>(Norm::kLayer, forward);
      auto backward = BackwardArgs(p, one, false);
      backward.rows = 1;
      backward.x = x.data() + r;
      backward.dy = dy.data() + r;
      backward.dx = dx.data() + r;
      NormBackward<TypeParam>(Norm::kLayer, backward);
      EXPECT_TRUE(std::equal(y.begin() + r, y.begin() + r + cols, all.y.begin() + r * cols));
      EXPECT_TRUE(std::equal(dx.begin() + r, dx.begin() + r + cols, all.dx.begin() + r * cols));
      EXPECT_EQ(one.mean[0], all.mean[r]);
      EXPECT_EQ(one.mean_lo[0], all.mean_lo[r]);
      EXPECT_EQ(one.rstd[0], all.rstd[r]);
    }
  }
}

TYPED_TEST(NormTest, EveryOutputIsOptional) {
  const Problem<TypeParam> p(40, 50);
  const auto expected = Apply(Norm::kLayer, p);
  Result<TypeParam> out(p);
  auto forward = ForwardArgs(p, out);
  forward.mean = forward.mean_lo = forward.rstd = nullptr;
  NormForward<TypeParam>(Norm::kLayer, forward);
  EXPECT_EQ(out.y, expected.y);
  EXPECT_THAT(out.mean, Each(IsNan()));
  out.mean = expected.mean;
  out.mean_lo = expected.mean_lo;
  out.rstd = expected.rstd;
  for (int wanted = 0; wanted < 8; ++wanted) {
    auto backward = BackwardArgs(p, out);
    if (!(wanted & 1)) backward.dx = nullptr;
    if (!(wanted & 2)) backward.dgain = nullptr;
    if (!(wanted & 4)) backward.dbias = nullptr;
    for (auto* output : {&out.dx, &out.dgain, &out.dbias}) std::ranges::fill(*output, out.kUnset);
    NormBackward<TypeParam>(Norm::kLayer, backward);
    const auto check = [](bool written, const auto& values, const auto& right) {
      if (written) {
        EXPECT_EQ(values, right);
      } else {
        EXPECT_THAT(values, Each(IsNan()));
      }
    };
    check(wanted & 1, out.dx, expected.dx);
    check(wanted & 2, out.dgain, expected.dgain);
    check(wanted & 4, out.dbias, expected.dbias);
  }
}

// The text of the Error that `call` throws, or "".
template <class F>
std::string ErrorOf(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(NormErrorTest, Forward) {
  const Problem<float> p(2, 3);
  Result<float> out(p);
  const auto error = [&](auto&& change, Norm norm = Norm::kLayer) {
    auto args = ForwardArgs(p, out);
    NormOptions options;
    change(args, options);
    return ErrorOf([&] { NormForward<float>(norm, args, options); });
  };
  EXPECT_EQ(error([](auto&, auto&) {}), "");
  EXPECT_EQ(error([](auto& a, auto&) { a.rows = -1; }),
            "[NormForward] rows must be at least 0 but has -1");
  EXPECT_EQ(error([](auto& a, auto&) { a.cols = -7; }),
            "[NormForward] cols must be at least 0 but has -7");
  EXPECT_EQ(error([](auto& a, auto&) { a.rows = a.cols = int64_t{1} << 32; }),
            "[NormForward] rows * cols must be at most 2305843009213693951 but has 4294967296 * "
            "4294967296");
  EXPECT_EQ(error([](auto& a, auto&) { a.rows = INT64_MAX, a.cols = INT64_MAX; }),
            "[NormForward] rows * cols must be at most 2305843009213693951 but has "
            "9223372036854775807 * 9223372036854775807");
  EXPECT_EQ(error([](auto&, auto& o) { o.eps = -1e-5; }),
            "[NormForward] eps must be finite and at least 0 but has -0.000010");
  EXPECT_EQ(error([](auto&, auto& o) { o.eps = NAN; }),
            "[NormForward] eps must be finite and at least 0 but has nan");
  EXPECT_EQ(error([](auto&, auto& o) { o.eps = INFINITY; }),
            "[NormForward] eps must be finite and at least 0 but has inf");
  EXPECT_EQ(error([](auto& a, auto&) { a.x = nullptr; }),
            "[NormForward] x must point to 24 bytes but has null");
  EXPECT_EQ(error([](auto& a, auto&) { a.y = nullptr; }),
            "[NormForward] y must point to 24 bytes but has null");
  EXPECT_EQ(error([](auto& a, auto&) { a.y = const_cast<float*>(a.x) + 1; }),
            "[NormForward] y must not overlap x but has bytes in common");
  EXPECT_EQ(error([](auto& a, auto&) { a.mean = a.y + 5; }),
            "[NormForward] mean must not overlap y but has bytes in common");
  std::vector<float> adjacent(8);  // y, then mean: side by side is apart
  EXPECT_EQ(error([&](auto& a, auto&) { a.y = &adjacent[0], a.mean = &adjacent[6]; }), "");
  EXPECT_EQ(error([&](auto& a, auto&) { a.mean = &adjacent[0], a.y = &adjacent[2]; }), "");
  EXPECT_EQ(error([](auto& a, auto&) { a.mean_lo = a.mean; }),
            "[NormForward] mean_lo must not overlap mean but has bytes in common");
  EXPECT_EQ(error([](auto& a, auto&) { a.rstd = const_cast<float*>(a.gain) - 1; }),
            "[NormForward] rstd must not overlap gain but has bytes in common");
  EXPECT_EQ(error([](auto&, auto&) {}, Norm::kLayerSimple),
            "[NormForward] gain must be null for a norm without gain and bias but has an address");
  EXPECT_EQ(error([](auto& a, auto&) { a.gain = nullptr; }, Norm::kLayerSimple),
            "[NormForward] bias must be null for a norm without gain and bias but has an address");
  EXPECT_EQ(error([](auto&, auto&) {}, static_cast<Norm>(99)),
            "[Norm] norm must be a value of planish::Norm but has 99");
}

TEST(NormErrorTest, Backward) {
  const Problem<double> p(2, 3);
  Result<double> out(p);
  NormForward<double>(Norm::kLayer, ForwardArgs(p, out));
  const auto error = [&](auto&& change, Norm norm = Norm::kLayer) {
    auto args = BackwardArgs(p, out);
    change(args);
    return ErrorOf([&] { NormBackward<double>(norm, args); });
  };
  EXPECT_EQ(error([](auto&) {}), "");
  EXPECT_EQ(error([](auto& a) { a.rows = -1; }),
            "[NormBackward] rows must be at least 0 but has -1");
  EXPECT_EQ(error([](auto& a) { a.cols = INT64_MIN; }),
            "[NormBackward] cols must be at least 0 but has -9223372036854775808");
  EXPECT_EQ(error([](auto& a) { a.rows = 0, a.cols = int64_t{1} << 60; }),
            "[NormBackward] rows * cols must be at most 1152921504606846975 but has 0 * "
            "1152921504606846976");
  for (const auto& [member, name] :
       {std::pair{&NormBackwardArgs<double>::dy, "dy"}, {&NormBackwardArgs<double>::x, "x"}}) {
    EXPECT_EQ(error([&](auto& a) { a.*member = nullptr; }),
              std::string("[NormBackward] ") + name + " must point to 48 bytes but has null");
  }
  for (const auto& [member, name] : {std::pair{&NormBackwardArgs<double>::mean, "mean"},
                                     {&NormBackwardArgs<double>::mean_lo, "mean_lo"},
                                     {&NormBackwardArgs<double>::rstd, "rstd"}}) {
    EXPECT_EQ(error([&](auto& a) { a.*member = nullptr; }),
              std::string("[NormBackward] ") + name + " must point to 16 bytes but has null");
  }
  EXPECT_EQ(error([](auto& a) { a.dx = const_cast<double*>(a.x); }),
            "[NormBackward] dx must not overlap x but has bytes in common");
  EXPECT_EQ(error([](auto& a) { a.dx = const_cast<double*>(a.dy) - 1; }),
            "[NormBackward] dx must not overlap dy but has bytes in common");
  EXPECT_EQ(error([](auto& a) { a.dgain = a.dx + 5; }),
            "[NormBackward] dgain must not overlap dx but has bytes in common");
  EXPECT_EQ(error([](auto& a) { a.dbias = const_cast<double*>(a.gain); }),
            "[NormBackward] dbias must not overlap gain but has bytes in common");
  EXPECT_EQ(error([](auto& a) { a.gain = nullptr; }, Norm::kLayerSimple),
            "[NormBackward] dgain must be null for a norm without gain and bias but has an "
            "address");
}

}  // namespace
}  // namespace planish
