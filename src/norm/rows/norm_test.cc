#include "planish/norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "src/norm/bounds.h"
#include "src/norm/recipe.h"
#include "src/norm/reference.h"
#include "src/norm/sets_testing.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using internal::Recipe;
using internal::RecipeOf;
using internal::ReferenceOptions;
using ::testing::Each;
using ::testing::IsNan;

// --- The reference against itself ---

// Sums of at most 67 terms of size 1 in long double, whose unit roundoff is 2^-64: 1e-17 is about
// 200 roundings.
constexpr long double kReference = 1e-17L;

using Row = std::vector<long double>;

Row RandomRow(int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  const std::vector<double> values = tests::Normal<double>(cols, random);
  return {values.begin(), values.end()};
}

// The formula of dx, which other tests use, is the derivative.
TEST(ReferenceTest, FormulaIsTheDerivative) {
  const ReferenceOptions options{1e-5, 1.5, 0.1};
  for (const Norm norm : tests::kNorms) {
    const Recipe recipe = RecipeOf(norm);
    for (const int64_t cols : {1, 2, 3, 5, 8, 17, 67}) {
      if (cols == 1 && norm == Norm::kAdaAsCoded) continue;
      const Row x = RandomRow(cols, 1), gain = RandomRow(cols, 2), dy = RandomRow(cols, 3);
      const Row xhat = internal::ReferenceXhat(recipe, x, options.eps);
      const auto rstd =
          internal::ReferenceRstd(recipe, x, internal::ReferenceMean(recipe, x), options.eps);
      const Row dx = internal::ReferenceGradient(recipe, options, xhat, rstd, gain, dy);
      for (size_t c = 0; c < x.size(); ++c) {
        const auto exact = internal::ReferenceDx(recipe, options, x, gain, dy, c);
        EXPECT_LE(std::abs(dx[c] - exact), kReference * std::max(1.0L, rstd))
            << tests::NameOf(norm) << ", column " << c << " of " << cols;
      }
    }
  }
}

TEST(ReferenceTest, GradientsOfGainAndBias) {
  const Recipe recipe = RecipeOf(Norm::kLayer);
  EXPECT_LE(std::abs(internal::ReferenceDgain(recipe, 0.5L, 2.0L, 3.0L, 7.0L) - 3.5L), kReference);
  EXPECT_LE(std::abs(internal::ReferenceDbias(recipe, 0.5L, 2.0L, 3.0L, 7.0L) - 7.0L), kReference);
}

// The reference stops gradients: with both stopped, dx is rstd * dy, unlike LayerNorm's.
TEST(ReferenceTest, StopsGradients) {
  const Row x = {1, 2, 4}, gain = {1, 1, 1}, dy = {1, 0, 0};
  const auto rstd = 1 / std::sqrt(14.0L / 9);  // variance of 1, 2, 4
  const auto dx = [&](Norm norm, size_t c) {
    return internal::ReferenceDx(RecipeOf(norm), {0, 1, 0.1}, x, gain, dy, c);
  };
  EXPECT_LE(std::abs(dx(Norm::kDetach, 0) - rstd), kReference);
  EXPECT_LE(std::abs(dx(Norm::kDetach, 1)), kReference);
  EXPECT_LE(std::abs(dx(Norm::kDetachDeviation, 0) - rstd * 2 / 3), kReference);
  EXPECT_LE(std::abs(dx(Norm::kDetachDeviation, 1) + rstd / 3), kReference);
  // xhat_0^2 = (16/9) / (14/9) = 8/7, so mean(g * xhat) * xhat_0 = 8/21.
  EXPECT_LE(std::abs(dx(Norm::kDetachMean, 0) - rstd * 13 / 21), kReference);
  EXPECT_LE(std::abs(dx(Norm::kLayerSimple, 0) - rstd * 2 / 7), kReference);
  // AdaNorm: g_0 = 1 - xhat_0 / 10 is a constant, and xhat_0 = -4/3 * rstd.
  const auto g0 = 1 + 4 * rstd / 30;
  EXPECT_LE(std::abs(dx(Norm::kAda, 0) - rstd * g0 * 2 / 7), kReference);
  // RMSNorm of 1, 2, 4: mean square 7, xhat_0^2 = 1/7.
  EXPECT_LE(std::abs(dx(Norm::kRms, 0) - (1 - 1.0L / 21) / std::sqrt(7.0L)), kReference);
}

// As coded: the unbiased deviation of 0, 2 is sqrt(2), and eps is outside the root.
TEST(ReferenceTest, AdaAsCoded) {
  const Recipe recipe = RecipeOf(Norm::kAdaAsCoded);
  const Row xhat = internal::ReferenceXhat(recipe, Row{0, 2}, 0.5);
  EXPECT_LE(std::abs(xhat[1] - 1 / (std::sqrt(2.0L) + 0.5L)), kReference);
  const auto y = internal::ReferenceOutput(recipe, {0.5, 2, 0.25}, xhat[1], 1.0L, 0.0L);
  EXPECT_LE(std::abs(y - 2 * (1 - 0.25L * xhat[1]) * xhat[1]), kReference);
}

// --- The kernels against the reference ---

// Every norm and type; each case covers every width and SIMD target.
enum class Types : uint8_t {
  kFloat,
  kDouble,
  kDoubleFloat,
  kBfloat16,
  kBfloat16Float,
  kFloat16,
  kFloat16Float
};

template <class F>
void VisitTypes(Types types, F&& f) {
  switch (types) {
    case Types::kFloat:
      return f.template operator()<float, float>();
    case Types::kDouble:
      return f.template operator()<double, double>();
    case Types::kDoubleFloat:
      return f.template operator()<double, float>();
    case Types::kBfloat16:
      return f.template operator()<bfloat16, bfloat16>();
    case Types::kBfloat16Float:
      return f.template operator()<bfloat16, float>();
    case Types::kFloat16:
      return f.template operator()<float16, float16>();
    case Types::kFloat16Float:
      return f.template operator()<float16, float>();
  }
}

std::string NameOfTypes(Types types) {
  std::string name;
  VisitTypes(types, [&]<class T, class P>() {
    name = tests::Name<T>::kText;
    if (!std::is_same_v<T, P>) name += std::string("_") + tests::Name<P>::kText;
  });
  return name;
}

using Case = std::tuple<Norm, Types>;

class MatrixTest : public ::testing::TestWithParam<Case> {};

template <class T, class P>
void ExpectWithinBounds(const tests::Problem<T, P>& p,
                        tests::Growth growth = tests::GrowthOf<T>()) {
  tests::ForEachTargetsErrors(p, growth, [&](const std::string& target, const auto& errors) {
    EXPECT_EQ(tests::Beyond(errors), "") << tests::NameOf(p.norm) << " of " << tests::Name<T>::kText
                                         << ", " << p.rows << " x " << p.cols << " on " << target;
  });
}

// Row counts that cover each grouping of rows and its remainder. One long row is enough.
std::vector<int64_t> RowsFor(int64_t cols) {
  if (cols <= 67) return {1, 2, 21};
  if (cols <= 5000) return {3};
  return {1};
}

TEST_P(MatrixTest, EveryWidthAgreesWithTheReference) {
  const Norm norm = std::get<0>(GetParam());
  const Types types = std::get<1>(GetParam());
  VisitTypes(types, [&]<class T, class P>() {
    for (const int64_t cols : tests::Widths()) {
      if (cols == 1 && norm == Norm::kAdaAsCoded) continue;  // has no unbiased deviation
      for (const int64_t rows : RowsFor(cols)) {
        ExpectWithinBounds(tests::Problem<T, P>(norm, rows, cols));
      }
    }
  });
}

// dgain and dbias: rows of one and several groups, in short blocks, narrow rows and wide rows.
TEST_P(MatrixTest, ManyRowsAgreeWithTheReference) {
  const Norm norm = std::get<0>(GetParam());
  const Types types = std::get<1>(GetParam());
  VisitTypes(types, [&]<class T, class P>() {
    for (const auto& [rows, cols] :
         {std::pair{64, 2}, {64, 33}, {257, 100}, {3000, 5}, {40000, 3}, {33, 1000}}) {
      ExpectWithinBounds(tests::Problem<T, P>(norm, rows, cols));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Norms, MatrixTest,
    ::testing::Combine(::testing::ValuesIn(tests::kNorms),
                       ::testing::Values(Types::kFloat, Types::kDouble, Types::kDoubleFloat,
                                         Types::kBfloat16, Types::kBfloat16Float, Types::kFloat16,
                                         Types::kFloat16Float)),
    [](const auto& tested) {
      return std::string(tests::NameOf(std::get<0>(tested.param))) + "_" +
             NameOfTypes(std::get<1>(tested.param));
    });

// --- Every element type ---

template <class T>
class NormTest : public ::testing::Test {};
using ElementTypes = ::testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(NormTest, ElementTypes);

TYPED_TEST(NormTest, GainAndBiasAreOptional) {
  for (const Norm norm : {Norm::kLayer, Norm::kRms}) {
    for (const int64_t cols : {1, 7, 64, 769}) {
      for (int given = 0; given < 4; ++given) {
        tests::Problem<TypeParam> p(norm, 3, cols);
        if (!(given & 1)) p.gain.clear();
        if (!(given & 2)) p.bias.clear();
        ExpectWithinBounds(p);
      }
    }
  }
}

TYPED_TEST(NormTest, SetsAreSeparateCalls) {
  using T = TypeParam;
  tests::ForEachTarget([](const std::string&) {
    tests::ExpectSetsAreSeparateCalls<T, T>([](const auto& p) { return tests::Apply(p); });
    tests::ExpectSetsAreSeparateCalls<T, float>(
        [](const auto& p) { return tests::Apply(p, tests::OnThreads(3)); });
  });
}

TYPED_TEST(NormTest, ScaleSlopeAndEps) {
  for (const Norm norm : {Norm::kAda, Norm::kAdaAsCoded}) {
    for (const double eps : {0.0, 1e-5, 0.5, 100.0}) {
      for (const auto& [scale, slope] :
           {std::pair{1.0, 0.0}, {-3.0, 0.3}, {0.0, 0.1}, {2.0, -1.0}}) {
        tests::Problem<TypeParam> p(norm, 3, 50);
        p.eps = eps;
        p.scale = scale;
        p.slope = slope;
        ExpectWithinBounds(p);
      }
    }
  }
}

// Values worked out by hand, independent of the reference. All are exact in every type except for
// roundings of y and dx: 4 ulp of the largest.
TYPED_TEST(NormTest, WorkedExample) {
  tests::Problem<TypeParam> p(Norm::kLayer, 1, 4);
  const auto set = [](std::vector<TypeParam>& values, std::initializer_list<double> numbers) {
    values.clear();
    for (const double number : numbers) values.push_back(tests::FromDouble<TypeParam>(number));
  };
  set(p.x, {2, 4, 6, 8});  // mean 5, variance 5
  set(p.gain, {1, 2, 3, 4});
  set(p.bias, {10, 20, 30, 40});
  set(p.dy, {1, 0, 0, 0});
  p.eps = 0;
  const double s = 1 / std::sqrt(5.0);
  const double unit = 4 * 2 * tests::UnitRoundoff<TypeParam>();
  const double y[] = {10 - 3 * s, 20 - 2 * s, 30 + 3 * s, 40 + 12 * s};
  // g = (1, 0, 0, 0), mean(g) = 1/4, mean(g * xhat) = -3s/4, and s^2 = 1/5:
  const double dx[] = {s * 0.3, s * -0.4, s * -0.1, s * 0.2};
  const double dgain[] = {-3 * s, 0, 0, 0}, dbias[] = {1, 0, 0, 0};
  tests::ForEachTarget([&](const std::string& target) {
    SCOPED_TRACE(target);
    const auto out = tests::Apply(p);
    for (size_t c = 0; c < 4; ++c) {
      EXPECT_NEAR(tests::ToDouble(out.y[c]), y[c], 64 * unit);
      EXPECT_NEAR(tests::ToDouble(out.dx[c]), dx[c], unit);
      EXPECT_NEAR(tests::ToDouble(out.dgain[c]), dgain[c], 2 * unit);
      EXPECT_EQ(tests::ToDouble(out.dbias[c]), dbias[c]);
    }
    EXPECT_EQ(out.mean[0], 5);
    EXPECT_EQ(out.mean_lo[0], 0);
    EXPECT_NEAR(out.rstd[0], s, 4 * std::numeric_limits<Compute<TypeParam>>::epsilon());
  });
}

TYPED_TEST(NormTest, NoRows) {
  const tests::Problem<TypeParam> p(Norm::kLayer, 0, 9);
  const auto out = tests::Apply(p);
  EXPECT_THAT(out.dgain, Each(TypeParam{0}));
  EXPECT_THAT(out.dbias, Each(TypeParam{0}));
}

TYPED_TEST(NormTest, NoColumns) {
  const tests::Problem<TypeParam> p(Norm::kLayer, 3, 0);
  auto out = tests::Apply(p);
  std::ranges::fill(out.mean, Compute<TypeParam>{1});  // overwritten by the call
  std::ranges::fill(out.mean_lo, Compute<TypeParam>{1});
  std::ranges::fill(out.rstd, Compute<TypeParam>{1});
  NormForward<TypeParam>(Norm::kLayer, tests::ForwardArgs(p, out));
  EXPECT_THAT(out.mean, Each(IsNan()));
  EXPECT_THAT(out.mean_lo, Each(IsNan()));
  EXPECT_THAT(out.rstd, Each(IsNan()));
}

TYPED_TEST(NormTest, EveryOutputIsOptional) {
  const tests::Problem<TypeParam> p(Norm::kLayer, 40, 50);
  const auto expected = tests::Apply(p);
  tests::Result<TypeParam> out(p);
  const tests::Result<TypeParam> unset(p);
  auto forward = tests::ForwardArgs(p, out);
  forward.mean = forward.mean_lo = forward.rstd = nullptr;
  NormForward<TypeParam>(Norm::kLayer, forward);
  EXPECT_TRUE(tests::SameBits(out.y, expected.y));
  EXPECT_THAT(out.mean, Each(IsNan()));
  out.mean = expected.mean;
  out.mean_lo = expected.mean_lo;
  out.rstd = expected.rstd;
  for (int wanted = 0; wanted < 8; ++wanted) {
    SCOPED_TRACE(wanted);
    auto backward = tests::BackwardArgs(p, out);
    if (!(wanted & 1)) backward.dx = nullptr;
    if (!(wanted & 2)) backward.dgain = nullptr;
    if (!(wanted & 4)) backward.dbias = nullptr;
    out.dx = unset.dx;
    out.dgain = unset.dgain;
    out.dbias = unset.dbias;
    NormBackward<TypeParam>(Norm::kLayer, backward);
    EXPECT_TRUE(tests::SameBits(out.dx, wanted & 1 ? expected.dx : unset.dx));
    EXPECT_TRUE(tests::SameBits(out.dgain, wanted & 2 ? expected.dgain : unset.dgain));
    EXPECT_TRUE(tests::SameBits(out.dbias, wanted & 4 ? expected.dbias : unset.dbias));
  }
}

}  // namespace
}  // namespace planish
