#include "planish/batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "src/norm/channels/batch_norm_testing.h"

namespace planish {
namespace {

using namespace tests::batch_norm;  // NOLINT(google-build-using-namespace): helpers
using testing::Each;
using tests::ErrorOf;
using tests::ForEachTarget;
using tests::FromDouble;
using tests::IsNan;
using tests::Near;
using tests::Random;
using tests::Real;
using tests::SameBits;
using tests::Shape;
using tests::SplitIn;
using tests::StorageError;
using tests::ToDouble;
using tests::UnitRoundoff;
using tests::Unset;

template <class T, class P>
Result<T, P> Apply(Problem<T, P> p, const ParallelFor& parallel_for = {}) {
  Result<T, P> out(p);
  p.options.parallel_for = parallel_for;
  BatchNormForward(ForwardArgs(p, out), p.options);
  BatchNormBackward(BackwardArgs(p, out), p.options);
  return out;
}

template <class T>
class BatchNormTest : public testing::Test {};
using Types = testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(BatchNormTest, Types);

// Shapes with one, few and many channels and samples. Runs are on both sides of the limit to
// columns, and of the limits of parts.
std::vector<Shape> Shapes() {
  std::vector<Shape> shapes = {
      {2, 1, 1},     {3, 1, 1},     {1, 1, 2},     {1, 3, 5},    {4, 2, 1},    {4, 2, 3},
      {4, 17, 1},    {128, 10, 1},  {7, 100, 1},   {9, 511, 1},  {17, 512, 1}, {5, 513, 1},
      {3, 1025, 1},  {130, 3, 1},   {1000, 1, 1},  {5000, 1, 1}, {1001, 7, 1}, {2, 3, 49},
      {9, 5, 63},    {3, 5, 64},    {3, 4, 65},    {2, 33, 100}, {1, 1, 1000}, {1, 2, 1025},
      {2, 1, 17000}, {1, 2, 16385}, {1, 1, 40000}, {40, 20, 12}, {2, 700, 2},  {1, 600, 3},
      {70, 3, 81},   {9, 17000, 1}};
  for (int64_t c = 1; c <= 67; c += 3) shapes.push_back({5, c, 1});
  for (int64_t s = 1; s <= 67; s += 4) shapes.push_back({3, 2, s});
  return shapes;
}

TYPED_TEST(BatchNormTest, AgreesWithReference) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Shape& shape : Shapes()) {
      Problem<TypeParam> p(shape);
      ExpectAgreesWithReference(p, Apply(p));
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

// The widths of the row tests, as channels and as runs of one element.
TYPED_TEST(BatchNormTest, EveryWidthAgreesWithReference) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const int64_t width : tests::Widths()) {
      for (const Shape& shape : {Shape{3, width, 1}, {2, 2, width}}) {
        const Problem<TypeParam> p(shape);
        ExpectAgreesWithReference(p, Apply(p));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

// Blocks of rows with more columns than one tile of sums.
TEST(BatchNormManyRowsTest, AgreesWithReference) {
  const Problem<float> p({2051, 1100, 1});
  ExpectAgreesWithReference(p, Apply(p));
}

TYPED_TEST(BatchNormTest, UnbiasedAgreesWithReference) {
  for (const Shape& shape : {Shape{4, 10, 1}, {2, 3, 1}, {4, 600, 1}, {1, 3, 70}, {300, 5, 2}}) {
    Problem<TypeParam> p(shape);
    p.options.unbiased = true;
    ExpectAgreesWithReference(p, Apply(p));
  }
}

TYPED_TEST(BatchNormTest, ParametersInFloat) {
  if constexpr (!std::is_same_v<TypeParam, float>) {
    for (const Shape& shape : {Shape{9, 10, 1}, {3, 4, 100}}) {
      Problem<TypeParam, float> p(shape);
      ExpectAgreesWithReference(p, Apply(p));
    }
  }
}

TYPED_TEST(BatchNormTest, GainAndBiasAreOptional) {
  for (const Shape& shape : {Shape{9, 10, 1}, {3, 4, 100}}) {
    const Problem<TypeParam> p(shape, false);
    ExpectAgreesWithReference(p, Apply(p));
    Problem<TypeParam> gain(shape);
    gain.bias.clear();
    ExpectAgreesWithReference(gain, Apply(gain));
    Problem<TypeParam> bias(shape);
    bias.gain.clear();
    ExpectAgreesWithReference(bias, Apply(bias));
  }
}

// Documented accuracy for float, 5e-7. Difference, product, scale and addition are four roundings
// of 2^-24, 2.4e-7; sums of eight elements, averaged over groups, are the rest.
TEST(BatchNormAccuracyTest, FloatIsExactAtAnyMean) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const double mean : {0.0, 1.0, -1e2, 1e4, 1e6, 1e7, -1e7}) {
      for (const Shape& shape : {Shape{4, 65, 1},
                                 {128, 40, 1},
                                 {5000, 2, 1},
                                 {2, 3, 100},
                                 {4, 2, 1000},
                                 {1, 1, 4096},
                                 {3, 600, 7}}) {
        SCOPED_TRACE(testing::Message() << "mean " << mean << ", " << shape);
        const Problem<float> p(shape, false, mean);
        const auto out = Apply(p);
        for (int64_t c = 0; c < shape.channels; ++c) {
          std::vector<Real> x = ChannelOf(shape, p.x, c);
          const std::vector<Real> y = ChannelOf(shape, out.y, c);
          for (const Real last = x.back(); Real & value : x) value -= last;
          const std::vector<Real> xhat = ReferenceXhat(x, p.options.eps, false);
          for (size_t i = 0; i < x.size(); ++i) {
            ASSERT_TRUE(Near(y[i], xhat[i], 5e-7L * std::max<Real>(1, std::abs(xhat[i]))));
          }
        }
        ExpectAgreesWithReference(p, out);
      }
    }
  });
}

TEST(BatchNormAccuracyTest, DoubleIsExactAtAnyMean) {
  for (const double mean : {1e4, 1e7, -1e15}) {
    const Problem<double> p({50, 20, 1}, true, mean, 10);
    ExpectAgreesWithReference(p, Apply(p));
  }
}

// The shift is the mean of a few elements of the channel; an outlier among them is the worst case.
TEST(BatchNormAccuracyTest, FloatSurvivesAnOutlierInFront) {
  for (const float outlier : {1e4f, -1e8f, 1e20f}) {
    for (const Shape& shape : {Shape{500, 3, 1}, {2, 3, 500}}) {
      Problem<float> p(shape);
      for (int64_t c = 0; c < shape.channels; ++c) p.x[shape.At(0, c, 0)] = outlier;
      ExpectAgreesWithReference(p, Apply(p));
    }
  }
}

// The shift uses eight rows. Channels whose eight rows are outliers are computed again, but not
// their neighbors in a vector.
TYPED_TEST(BatchNormTest, SomeChannelsAreComputedAgain) {
  for (const Shape& shape : {Shape{5000, 19, 1}, {2000, 7, 3}, {2, 9, 4000}}) {
    for (const bool unbiased : {false, true}) {
      Problem<TypeParam> p(shape);
      p.options.unbiased = unbiased;
      for (int64_t c = 2; c < shape.channels; c += 5) {
        for (int64_t i = 0; i < 8; ++i) {
          const int64_t b = (shape.batch - 1) * i / 7, s = (shape.spatial - 1) * i / 7;
          p.x[shape.At(b, c, s)] = tests::FromDouble<TypeParam>(100);
        }
      }
      ExpectAgreesWithReference(p, Apply(p));
    }
  }
}

TYPED_TEST(BatchNormTest, AnyScale) {
  if constexpr (sizeof(TypeParam) > 2) {
    for (const double scale : {1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30}) {
      for (const double eps : {0.0, 1e-5}) {
        for (const Shape& shape : {Shape{20, 30, 1}, {2, 3, 100}}) {
          Problem<TypeParam> p(shape, true, 3 * scale, scale);
          p.options.eps = eps;
          p.options.momentum = 0;  // the square of 1e30 exceeds float
          const auto out = Apply(p);
          EXPECT_TRUE(std::isfinite(out.rstd[0]));
          p.options.momentum = 0;
          if (scale < 1e19 || std::is_same_v<TypeParam, double>) ExpectAgreesWithReference(p, out);
        }
      }
    }
  }
}

TYPED_TEST(BatchNormTest, ConstantChannelGivesBias) {
  for (const double constant : {0.0, 1.0, 1234.567, -1e4, 65504.0}) {
    for (const Shape& shape : {Shape{1, 9, 1}, {2, 9, 1}, {33, 9, 1}, {3, 2, 100}, {33, 600, 1}}) {
      Problem<TypeParam> p(shape);
      std::ranges::fill(p.x, FromDouble<TypeParam>(constant));
      const auto out = Apply(p);
      for (int64_t i = 0; i < shape.total(); ++i) {
        ASSERT_TRUE(out.y[i] == p.bias[i / shape.spatial % shape.channels]) << constant;
      }
      for (const auto& dgain : out.dgain) ASSERT_EQ(ToDouble(dgain), 0);
      EXPECT_THAT(out.mean_lo, Each(0));
      if (shape.positions() > 1) {
        p.options.eps = 0;
        EXPECT_TRUE(IsNan(Apply(p).y[0]));
      }
    }
  }
}

TYPED_TEST(BatchNormTest, RunningEstimatesAverageWithoutMomentum) {
  const Shape shape{6, 3, 2};
  Result<TypeParam> out((Problem<TypeParam>(shape)));
  std::vector<Real> means(3, 0), vars(3, 0);
  for (int batch = 0; batch < 3; ++batch) {
    Problem<TypeParam> p(shape, true, batch, 1 + batch);
    p.options.momentum = std::nullopt;
    p.options.batches = batch;
    BatchNormForward(ForwardArgs(p, out), p.options);
    for (int64_t c = 0; c < 3; ++c) {
      const std::vector<Real> x = ChannelOf(shape, p.x, c);
      Real mean = 0, var = 0;
      for (const Real value : x) mean += value / 12;
      for (const Real value : x) var += (value - mean) * (value - mean) / 11;
      means[c] += mean / 3;
      vars[c] += var / 3;
    }
  }
  for (int64_t c = 0; c < 3; ++c) {
    // Each update is rounded once, and statistics have errors of a few u, here for values up to 10.
    EXPECT_TRUE(Near(out.running_mean[c], means[c], 100 * UnitRoundoff<Compute<TypeParam>>()));
    EXPECT_TRUE(
        Near(out.running_var[c], vars[c], 100 * UnitRoundoff<Compute<TypeParam>>() * vars[c]));
  }
}

// Values worked out by hand, independent of the reference.
TYPED_TEST(BatchNormTest, WorkedExample) {
  Problem<TypeParam> p({4, 1, 1});
  const auto set = [](std::vector<TypeParam>& values, std::vector<double> numbers) {
    values.clear();
    for (const double number : numbers) values.push_back(FromDouble<TypeParam>(number));
  };
  set(p.x, {2, 4, 6, 8});  // mean 5, sum of squares 20
  set(p.gain, {2});
  set(p.bias, {10});
  set(p.dy, {1, 0, 0, 0});
  for (const bool unbiased : {false, true}) {
    p.options.eps = 0;
    p.options.unbiased = unbiased;
    const auto out = Apply(p);
    const Real s = 1 / std::sqrt(Real{20} / (unbiased ? 3 : 4));
    EXPECT_EQ(out.mean[0], 5);
    EXPECT_TRUE(Near(out.rstd[0], s, UnitRoundoff<Compute<TypeParam>>()));
    EXPECT_TRUE(
        Near(out.running_mean[0], 0.9L * 2 + 0.1L * 5, 4 * UnitRoundoff<Compute<TypeParam>>()));
    EXPECT_TRUE(
        Near(out.running_var[0], 0.9L * 3 + 0.1L * 20 / 3, 4 * UnitRoundoff<Compute<TypeParam>>()));
    // xhat_0 = -3s; dx_i = 2 s (dy_i - 1/4 + xhat_i 3s / m), with 9 s^2 = 9/5 for m = 4, 27/20 for
    // m = 3.
    const Real square = s * s / (unbiased ? 3 : 4);
    for (int i = 0; i < 4; ++i) {
      const Real d = 2 * i - 3;
      EXPECT_TRUE(Near(ToDouble(out.y[i]), 10 + 2 * d * s, 14 * 2 * UnitRoundoff<TypeParam>()));
      EXPECT_TRUE(Near(ToDouble(out.dx[i]), 2 * s * ((i == 0) - 0.25L + 3 * d * square),
                       4 * UnitRoundoff<TypeParam>()));
    }
    EXPECT_TRUE(Near(ToDouble(out.dgain[0]), -3 * s, 4 * UnitRoundoff<TypeParam>()));
    EXPECT_EQ(ToDouble(out.dbias[0]), 1);
  }
}

TYPED_TEST(BatchNormTest, NanAndInfinityStayInTheirChannel) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const Shape& shape : {Shape{20, 9, 1}, {20, 600, 1}, {3, 9, 20}, {3, 9, 100}}) {
    const Problem<TypeParam> clean(shape);
    Problem<TypeParam> p = clean;
    const auto put = [&](int64_t b, int64_t c, int64_t s, double value) {
      p.x[shape.At(b, c, s)] = FromDouble<TypeParam>(value);
    };
    put(0, 1, 0, std::numeric_limits<double>::quiet_NaN());
    put(2, 3, shape.spatial - 1, inf);
    put(1, 4, 0, -inf);
    put(0, 8, 0, inf);
    put(1, 8, 0, -inf);
    const auto expected = Apply(clean), out = Apply(p);
    for (int64_t c = 0; c < 9; ++c) {
      const bool bad = c == 1 || c == 3 || c == 4 || c == 8;
      EXPECT_EQ(IsNan(out.rstd[c]), bad) << c;
      EXPECT_EQ(IsNan(out.running_var[c]), bad) << c;
      EXPECT_EQ(IsNan(out.dgain[c]), bad) << c;
      EXPECT_TRUE(out.dbias[c] == expected.dbias[c]);
      for (int64_t b = 0; b < shape.batch; ++b) {
        for (int64_t i = shape.At(b, c, 0); i < shape.At(b, c, 0) + shape.spatial; ++i) {
          if (bad) {
            EXPECT_TRUE(IsNan(out.y[i]) && IsNan(out.dx[i]));
          } else {
            EXPECT_TRUE(out.y[i] == expected.y[i] && out.dx[i] == expected.dx[i]);
          }
        }
      }
    }
  }
}

// A NaN with any bits, which conversion to 16 bits must not turn into a finite value.
TEST(BatchNormNanTest, AnyNanOfTheParametersStaysNan) {
  Problem<bfloat16, float> p({3, 40, 1});
  p.gain[5] = std::bit_cast<float>(0x7fffffffu);
  p.bias[7] = std::bit_cast<float>(0xffffffffu);
  const auto out = Apply(p);
  EXPECT_TRUE(IsNan(out.y[5]) && IsNan(out.y[7]) && IsNan(out.dx[5]));
}

TYPED_TEST(BatchNormTest, SameBitsForEverySplit) {
  // Tiles of columns; blocks of rows; narrow rows side by side with a short last one; runs in
  // tiles; parts of runs.
  for (const Shape& shape : {Shape{64, 2000, 1},
                             {3000, 300, 1},
                             {2051, 1100, 1},
                             {40001, 7, 1},
                             {3, 40, 3000},
                             {5, 3, 40000},
                             {20, 100, 49}}) {
    const Problem<TypeParam> p(shape);
    const auto expected = Apply(p, SerialFor);
    for (const int64_t parts : {1, 2, 3, 7}) {
      int calls = 0;
      EXPECT_EQ(Apply(p, SplitIn(parts, &calls)).DiffersIn(expected), "")
          << shape << " in " << parts;
      EXPECT_GE(calls, 2);
    }
  }
}

std::vector<Shape> NtStoreShapes() {
  std::vector<Shape> shapes = Shapes();
  // Blocks of rows, wide samples, tiles of channels, tiles of runs, and neither.
  for (const Shape& shape :
       {Shape{2500, 300, 1}, {600, 4100, 1}, {40, 600, 3}, {9, 40, 300}, {2100, 70, 64}}) {
    shapes.push_back(shape);
  }
  return shapes;
}

// Non-temporal stores give the same bits, for whole and partial lines.
TYPED_TEST(BatchNormTest, NtStoresGiveTheSameBits) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Shape& shape : NtStoreShapes()) {
      const Problem<TypeParam> p(shape);
      const auto expected = Apply(p);
      const tests::NtStores nt_stores;
      EXPECT_EQ(Apply(p).DiffersIn(expected), "") << shape;
      for (const int64_t offset : {1, 5}) {
        Result<TypeParam> out(p);
        tests::Shifted<TypeParam> y(out.y, offset), dx(out.dx, offset);
        auto forward = ForwardArgs(p, out);
        forward.y = y.begin;
        BatchNormForward(forward, p.options);
        EXPECT_TRUE(SameBits(y.values(), expected.y)) << shape;
        auto backward = BackwardArgs(p, out);
        backward.dx = dx.begin;
        BatchNormBackward(backward, p.options);
        EXPECT_TRUE(SameBits(dx.values(), expected.dx)) << shape;
      }
    }
  });
}

// Includes rows that are summed in blocks, which change the order of additions.
TYPED_TEST(BatchNormTest, TilesOfColumnsGiveTheSameBits) {
  for (const Shape& shape :
       {Shape{64, 700, 1}, {255, 520, 1}, {300, 520, 1}, {1100, 260, 2}, {2051, 530, 1}}) {
    const Problem<TypeParam> p(shape);
    const auto apply = [&](const char* tuning) {
      const internal::ScopedTuning scoped(internal::TuningFor(internal::MachineCaches(), tuning));
      return Apply(p);
    };
    const auto expected = apply("untiled_rows=0");
    EXPECT_EQ(apply("untiled_rows=1000000").DiffersIn(expected), "") << shape;
    EXPECT_EQ(apply("untiled_rows=512").DiffersIn(expected), "") << shape;
  }
}

TYPED_TEST(BatchNormTest, SmallWorkStaysOnTheCallingThread) {
  for (const Shape& shape : {Shape{4, 1000, 1}, {4, 10, 100}, {1000, 3, 1}}) {
    int calls = 0;
    Apply(Problem<TypeParam>(shape), SplitIn(2, &calls));
    EXPECT_EQ(calls, 0) << shape;
  }
}

TYPED_TEST(BatchNormTest, InPlaceGivesTheSameBits) {
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(testing::Message() << shape);
    const Problem<TypeParam> p(shape);
    const auto expected = Apply(p);
    const auto expect_in_place = [&] {
      Problem<TypeParam> work = p;
      Result<TypeParam> out(p);
      auto forward = ForwardArgs(work, out);
      forward.y = work.x.data();
      BatchNormForward(forward, p.options);
      EXPECT_TRUE(SameBits(work.x, expected.y));
      work.x = p.x;
      auto backward = BackwardArgs(work, out);
      backward.dx = work.dy.data();
      BatchNormBackward(backward, p.options);
      EXPECT_TRUE(SameBits(work.dy, expected.dx));
      EXPECT_TRUE(SameBits(out.dgain, expected.dgain) && SameBits(out.dbias, expected.dbias));
    };
    expect_in_place();
    const tests::NtStores nt_stores;
    expect_in_place();
  }
}

TYPED_TEST(BatchNormTest, EveryOutputIsOptional) {
  for (const Shape& shape : {Shape{40, 50, 1}, {3, 5, 100}, {3000, 600, 1}}) {
    const Problem<TypeParam> p(shape);
    const auto expected = Apply(p);
    Result<TypeParam> out(p);
    auto forward = ForwardArgs(p, out);
    forward.mean = forward.mean_lo = forward.rstd = nullptr;
    forward.running_mean = forward.running_var = nullptr;
    BatchNormForward(forward, p.options);
    EXPECT_TRUE(SameBits(out.y, expected.y));
    out.mean = expected.mean;
    out.mean_lo = expected.mean_lo;
    out.rstd = expected.rstd;
    for (int wanted = 0; wanted < 8; ++wanted) {
      Result<TypeParam> fresh(p);
      auto backward = BackwardArgs(p, out);
      backward.dx = wanted & 1 ? fresh.dx.data() : nullptr;
      backward.dgain = wanted & 2 ? fresh.dgain.data() : nullptr;
      backward.dbias = wanted & 4 ? fresh.dbias.data() : nullptr;
      BatchNormBackward(backward, p.options);
      const Result<TypeParam> untouched(p);
      EXPECT_TRUE(SameBits(fresh.dx, wanted & 1 ? expected.dx : untouched.dx));
      EXPECT_TRUE(SameBits(fresh.dgain, wanted & 2 ? expected.dgain : untouched.dgain));
      EXPECT_TRUE(SameBits(fresh.dbias, wanted & 4 ? expected.dbias : untouched.dbias));
    }
  }
}

TYPED_TEST(BatchNormTest, EmptyArraysAreValid) {
  for (const Shape& shape : {Shape{0, 9, 1}, {3, 9, 0}}) {
    const auto out = Apply(Problem<TypeParam>(shape));
    for (int64_t c = 0; c < 9; ++c) {
      EXPECT_TRUE(IsNan(out.mean[c]) && IsNan(out.rstd[c]));
      EXPECT_EQ(out.running_mean[c], 2);
      EXPECT_EQ(out.running_var[c], 3);
      EXPECT_EQ(ToDouble(out.dgain[c]), 0);
      EXPECT_EQ(ToDouble(out.dbias[c]), 0);
    }
  }
  Apply(Problem<TypeParam>({1, 0, 1}));
}

TYPED_TEST(BatchNormTest, EvaluationAgreesWithReference) {
  using C = Compute<TypeParam>;
  constexpr Real u = UnitRoundoff<Compute<TypeParam>>();
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Shape& shape : Shapes()) {
      SCOPED_TRACE(testing::Message() << shape);
      const Problem<TypeParam> p(shape);
      std::mt19937 random(7);
      const auto mean = Random<C>(shape.channels, random);
      auto var = Random<C>(shape.channels, random);
      for (C& value : var) value = value * value;
      Result<TypeParam> out(p);
      BatchNormEvaluate<TypeParam>(EvaluateArgs(p, mean, var, out));
      const auto backward = [&](bool dx, bool dgain, bool dbias) {
        BatchNormEvaluateBackward<TypeParam>({.batch = shape.batch,
                                              .channels = shape.channels,
                                              .spatial = shape.spatial,
                                              .dy = p.dy.data(),
                                              .x = dgain ? p.x.data() : nullptr,
                                              .gain = p.gain.data(),
                                              .running_mean = dgain ? mean.data() : nullptr,
                                              .running_var = var.data(),
                                              .dx = dx ? out.dx.data() : nullptr,
                                              .dgain = dgain ? out.dgain.data() : nullptr,
                                              .dbias = dbias ? out.dbias.data() : nullptr});
      };
      backward(true, true, true);
      for (int64_t c = 0; c < shape.channels; ++c) {
        const std::vector<Real> x = ChannelOf(shape, p.x, c), dy = ChannelOf(shape, p.dy, c);
        const std::vector<Real> y = ChannelOf(shape, out.y, c), dx = ChannelOf(shape, out.dx, c);
        const Real rstd = 1 / std::sqrt(Real{var[c]} + 1e-5L);
        const Real gain = ToDouble(p.gain[c]), bias = ToDouble(p.bias[c]);
        Real dgain = 0, dbias = 0, abs_dgain = 0, abs_dbias = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          const Real xhat = (x[i] - mean[c]) * rstd;
          // Difference, scale, product and sum.
          const Real y_error = 4 * u * (std::abs(gain * xhat) + std::abs(bias));
          ASSERT_TRUE(
              Near(y[i], gain * xhat + bias,
                   y_error + StorageError<TypeParam>(std::abs(gain * xhat + bias) + y_error)));
          ASSERT_TRUE(Near(dx[i], gain * rstd * dy[i],
                           3 * u * std::abs(gain * rstd * dy[i]) +
                               StorageError<TypeParam>(gain * rstd * dy[i])));
          dgain += dy[i] * xhat;
          dbias += dy[i];
          abs_dgain += std::abs(dy[i] * xhat);
          abs_dbias += std::abs(dy[i]);
        }
        // As in ExpectAgreesWithReference.
        const Real n = static_cast<Real>(shape.positions());
        const Real additions =
            (shape.spatial < 64 ? 8 : 256) + (std::is_same_v<TypeParam, double> ? n : Real{0});
        const Real sum_error = (4 * std::sqrt(additions) + 8) * u + n * 0x1p-53L;
        ASSERT_TRUE(Near(ToDouble(out.dgain[c]), dgain,
                         sum_error * abs_dgain + StorageError<TypeParam>(std::abs(dgain) * 1.01L)));
        ASSERT_TRUE(Near(ToDouble(out.dbias[c]), dbias,
                         sum_error * abs_dbias + StorageError<TypeParam>(std::abs(dbias) * 1.01L)));
      }
      const auto expected = out;
      for (int wanted = 1; wanted < 7; ++wanted) {
        out.dx.assign(out.dx.size(), Unset<TypeParam>());
        out.dgain.assign(out.dgain.size(), Unset<TypeParam>());
        out.dbias.assign(out.dbias.size(), Unset<TypeParam>());
        backward(wanted & 1, wanted & 2, wanted & 4);
        if (wanted & 1) {
          ASSERT_TRUE(SameBits(out.dx, expected.dx));
        }
        if (wanted & 2) {
          ASSERT_TRUE(SameBits(out.dgain, expected.dgain));
        }
        if (wanted & 4) {
          ASSERT_TRUE(SameBits(out.dbias, expected.dbias));
        }
      }
    }
  });
}

// Threads, in place, and non-temporal stores.
TYPED_TEST(BatchNormTest, EvaluationGivesTheSameBits) {
  using C = Compute<TypeParam>;
  for (const Shape& shape :
       {Shape{64, 2000, 1}, {9, 17000, 1}, {40001, 7, 1}, {3, 40, 3000}, {20, 100, 49}}) {
    SCOPED_TRACE(testing::Message() << shape);
    const Problem<TypeParam> p(shape);
    std::mt19937 random(7);
    const auto mean = Random<C>(shape.channels, random);
    const std::vector<C> var(shape.channels, 2);
    const auto apply = [&](const ParallelFor& parallel_for, bool in_place) {
      Result<TypeParam> out(p);
      if (in_place) out.y = p.x, out.dx = p.dy;
      const BatchNormOptions options{.parallel_for = parallel_for};
      auto forward = EvaluateArgs(p, mean, var, out);
      auto backward = EvaluateBackwardArgs(p, mean, var, out);
      if (in_place) forward.x = out.y.data(), backward.dy = out.dx.data();
      BatchNormEvaluate<TypeParam>(forward, options);
      BatchNormEvaluateBackward<TypeParam>(backward, options);
      return out;
    };
    const auto expected = apply(SerialFor, false);
    EXPECT_EQ(apply(SerialFor, true).DiffersIn(expected), "");
    for (const int64_t parts : {1, 2, 3, 7}) {
      int calls = 0;
      EXPECT_EQ(apply(SplitIn(parts, &calls), false).DiffersIn(expected), "") << parts;
      EXPECT_GE(calls, 2);
    }
    const tests::NtStores nt_stores;
    EXPECT_EQ(apply(SerialFor, false).DiffersIn(expected), "");
    EXPECT_EQ(apply(SerialFor, true).DiffersIn(expected), "");
  }
}

TEST(BatchNormErrorTest, Forward) {
  const Problem<float> p({2, 3, 1});
  Result<float> out(p);
  const auto error = [&](auto&& change) {
    auto args = ForwardArgs(p, out);
    BatchNormOptions options;
    change(args, options);
    return ErrorOf([&] { BatchNormForward(args, options); });
  };
  EXPECT_EQ(error([](auto&, auto&) {}), "");
  EXPECT_EQ(error([](auto& a, auto&) { a.batch = -1; }),
            "[BatchNormForward] batch must be at least 0, got -1");
  EXPECT_EQ(error([](auto& a, auto&) { a.channels = -2; }),
            "[BatchNormForward] channels must be at least 0, got -2");
  EXPECT_EQ(error([](auto& a, auto&) { a.spatial = INT64_MIN; }),
            "[BatchNormForward] spatial must be at least 0, got -9223372036854775808");
  EXPECT_EQ(
      error([](auto& a, auto&) { a.batch = 0, a.channels = a.spatial = int64_t{1} << 31; }),
      "[BatchNormForward] batch * channels * spatial must be at most 2305843009213693951, got "
      "0 * 2147483648 * 2147483648");
  EXPECT_EQ(
      error([](auto& a, auto&) { a.batch = INT64_MAX, a.channels = 2; }),
      "[BatchNormForward] batch * channels * spatial must be at most 2305843009213693951, got "
      "9223372036854775807 * 2 * 1");
  EXPECT_EQ(error([](auto&, auto& o) { o.eps = -1; }),
            "[BatchNormForward] eps must be finite and at least 0, got -1");
  EXPECT_EQ(error([](auto&, auto& o) { o.momentum = 1.5; }),
            "[BatchNormForward] momentum must be in [0, 1], got 1.5");
  EXPECT_EQ(error([](auto&, auto& o) { o.momentum = NAN; }),
            "[BatchNormForward] momentum must be in [0, 1], got nan");
  EXPECT_EQ(error([](auto&, auto& o) { o.batches = -3; }),
            "[BatchNormForward] batches must be at least 0, got -3");
  EXPECT_EQ(error([](auto& a, auto&) { a.batch = 1; }),
            "[BatchNormForward] batch * spatial must be at least 2 for an unbiased variance, got "
            "1");
  EXPECT_EQ(error([](auto& a, auto&) { a.batch = 1, a.running_var = nullptr; }), "");
  EXPECT_EQ(
      error([](auto& a, auto& o) { a.batch = 1, a.running_var = nullptr, o.unbiased = true; }),
      "[BatchNormForward] batch * spatial must be at least 2 for an unbiased variance, got "
      "1");
  EXPECT_EQ(error([](auto& a, auto&) { a.x = nullptr; }),
            "[BatchNormForward] x must point to 24 bytes, got null");
  EXPECT_EQ(error([](auto& a, auto&) { a.y = nullptr; }),
            "[BatchNormForward] y must point to 24 bytes, got null");
  EXPECT_EQ(error([](auto& a, auto&) { a.y = const_cast<float*>(a.x) + 1; }),
            "[BatchNormForward] y must not overlap x, got 20 bytes in common");
  EXPECT_EQ(error([](auto& a, auto&) { a.running_mean = a.mean; }),
            "[BatchNormForward] running_mean must not overlap mean, got 12 bytes in common");
  EXPECT_EQ(
      error([](auto& a, auto&) {
        a.running_var = reinterpret_cast<float*>(reinterpret_cast<char*>(a.running_var) + 2);
      }),
      "[BatchNormForward] running_var must be aligned to 4 bytes, got an address 2 bytes past a "
      "multiple of 4");
}

TEST(BatchNormErrorTest, Backward) {
  const Problem<double> p({2, 3, 1});
  Result<double> out(p);
  BatchNormForward(ForwardArgs(p, out));
  const auto error = [&](auto&& change) {
    auto args = BackwardArgs(p, out);
    BatchNormOptions options;
    change(args, options);
    return ErrorOf([&] { BatchNormBackward(args, options); });
  };
  EXPECT_EQ(error([](auto&, auto&) {}), "");
  EXPECT_EQ(error([](auto& a, auto&) { a.batch = -1; }),
            "[BatchNormBackward] batch must be at least 0, got -1");
  EXPECT_EQ(error([](auto& a, auto& o) { a.batch = 1, o.unbiased = true; }),
            "[BatchNormBackward] batch * spatial must be at least 2 for an unbiased variance, got "
            "1");
  for (const auto& [member, name] : {std::pair{&BatchNormBackwardArgs<double>::mean, "mean"},
                                     {&BatchNormBackwardArgs<double>::mean_lo, "mean_lo"},
                                     {&BatchNormBackwardArgs<double>::rstd, "rstd"}}) {
    EXPECT_EQ(error([of = member](auto& a, auto&) { a.*of = nullptr; }),
              std::string("[BatchNormBackward] ") + name + " must point to 24 bytes, got null");
  }
  EXPECT_EQ(error([](auto& a, auto&) { a.dx = const_cast<double*>(a.x); }),
            "[BatchNormBackward] dx must not overlap x, got 48 bytes in common");
  EXPECT_EQ(error([](auto& a, auto&) { a.dgain = const_cast<double*>(a.gain); }),
            "[BatchNormBackward] dgain must not overlap gain, got 24 bytes in common");
}

TEST(BatchNormErrorTest, Evaluation) {
  const Problem<float> p({2, 3, 1});
  Result<float> out(p);
  const BatchNormEvaluateArgs<float> forward{.batch = 2,
                                             .channels = 3,
                                             .x = p.x.data(),
                                             .running_mean = out.running_mean.data(),
                                             .running_var = out.running_var.data(),
                                             .y = out.y.data()};
  auto args = forward;
  args.running_var = nullptr;
  EXPECT_EQ(ErrorOf([&] { BatchNormEvaluate(args); }),
            "[BatchNormEvaluate] running_var must point to 12 bytes, got null");
  args = forward;
  args.y = out.running_mean.data();
  EXPECT_EQ(ErrorOf([&] { BatchNormEvaluate(args); }),
            "[BatchNormEvaluate] y must not overlap running_mean, got 12 bytes in common");
  BatchNormEvaluateBackwardArgs<float> backward{.batch = 2,
                                                .channels = 3,
                                                .dy = p.dy.data(),
                                                .running_var = out.running_var.data(),
                                                .dgain = out.dgain.data()};
  EXPECT_EQ(ErrorOf([&] { BatchNormEvaluateBackward(backward); }),
            "[BatchNormEvaluateBackward] x must point to 24 bytes, got null");
  backward.dgain = nullptr;
  EXPECT_EQ(ErrorOf([&] { BatchNormEvaluateBackward(backward); }), "");
}

}  // namespace
}  // namespace planish
