#include "planish/channel_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/norm/channels/channel_norm_testing.h"

namespace planish {
namespace {

using namespace tests::channel_norm;  // NOLINT(google-build-using-namespace): helpers
using testing::Each;
using tests::ErrorOf;
using tests::ForEachTarget;
using tests::FromDouble;
using tests::IsNan;
using tests::kNorms;
using tests::Near;
using tests::OrNull;
using tests::Real;
using tests::SameBits;
using tests::Shape;
using tests::SplitIn;
using tests::StorageError;
using tests::ToDouble;
using tests::UnitRoundoff;

template <class T, class P>
Result<T, P> Apply(const Problem<T, P>& p, const ParallelFor& parallel_for = {}) {
  Result<T, P> out(p);
  NormOptions options = p.options;
  options.parallel_for = parallel_for;
  ChannelNormForward(p.norm, ForwardArgs(p, out), options);
  ChannelNormBackward(p.norm, BackwardArgs(p, out), options);
  return out;
}

template <class T>
class ChannelNormTest : public testing::Test {};
using Types = testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(ChannelNormTest, Types);

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes = {{1, 1, 2},    {3, 1, 7},    {2, 1, 100}, {3, 2, 1},    {2, 100, 1},
                               {1, 3, 2},    {2, 50, 3},   {3, 200, 2}, {2, 33, 13},  {5, 17, 49},
                               {1, 7, 64},   {2, 8, 65},   {2, 9, 100}, {1, 16, 257}, {1, 40, 1025},
                               {1, 3, 2100}, {1, 600, 70}, {40, 4, 5},  {1, 3000, 6}};
  for (int64_t s = 2; s <= 67; s += 5) shapes.push_back({2, 11, s});
  for (int64_t c = 1; c <= 20; ++c) shapes.push_back({1, c, 9});
  return shapes;
}

TYPED_TEST(ChannelNormTest, AgreesWithReference) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Shape& shape : Shapes()) {
      const Problem<TypeParam> layer(Norm::kLayer, shape), rms(Norm::kRms, shape);
      ExpectAgreesWithReference(layer, Apply(layer));
      ExpectAgreesWithReference(rms, Apply(rms));
      if (testing::Test::HasFatalFailure()) return;
    }
  });
}

// The widths of the row tests, as channels and as runs of one element.
TYPED_TEST(ChannelNormTest, EveryWidthAgreesWithReference) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const int64_t width : tests::Widths()) {
      for (const Shape& shape : {Shape{1, width, 3}, {2, 3, width}}) {
        const Problem<TypeParam> p(Norm::kLayer, shape);
        ExpectAgreesWithReference(p, Apply(p));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

TYPED_TEST(ChannelNormTest, EveryNormAgreesWithReference) {
  for (const Norm norm : kNorms) {
    for (const Shape& shape : {Shape{2, 33, 13}, {2, 9, 100}}) {
      const Problem<TypeParam> p(norm, shape);
      ExpectAgreesWithReference(p, Apply(p));
    }
  }
}

TYPED_TEST(ChannelNormTest, ParametersInFloat) {
  if constexpr (!std::is_same_v<TypeParam, float>) {
    for (const Shape& shape : {Shape{2, 33, 13}, {2, 9, 100}}) {
      const Problem<TypeParam, float> p(Norm::kLayer, shape);
      ExpectAgreesWithReference(p, Apply(p));
    }
  }
}

TYPED_TEST(ChannelNormTest, GainAndBiasAreOptional) {
  for (const Shape& shape : {Shape{2, 33, 13}, {2, 9, 100}}) {
    for (int given = 0; given < 4; ++given) {
      Problem<TypeParam> p(Norm::kLayer, shape);
      if (!(given & 1)) p.gain.clear();
      if (!(given & 2)) p.bias.clear();
      ExpectAgreesWithReference(p, Apply(p));
    }
  }
}

// Every norm equals the norm of transposed rows; statistics differ only by the rounding of their
// sums.
TYPED_TEST(ChannelNormTest, AgreesWithRows) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Norm norm : kNorms) {
      for (const Shape& shape : {Shape{3, 20, 7}, {2, 30, 100}}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(norm) << ": " << shape);
        const Problem<TypeParam> p(norm, shape);
        const auto out = Apply(p);
        const auto rows_of = [&](const auto& values) {
          auto rows = values;
          for (int64_t b = 0; b < shape.batch; ++b) {
            for (int64_t c = 0; c < shape.channels; ++c) {
              for (int64_t s = 0; s < shape.spatial; ++s) {
                rows[(b * shape.spatial + s) * shape.channels + c] = values[shape.At(b, c, s)];
              }
            }
          }
          return rows;
        };
        const auto x = rows_of(p.x), dy = rows_of(p.dy), y = rows_of(out.y), dx = rows_of(out.dx);
        Result<TypeParam> rows(p);
        NormForward<TypeParam>(norm, {.rows = shape.positions(),
                                      .cols = shape.channels,
                                      .x = x.data(),
                                      .gain = OrNull(p.gain),
                                      .bias = OrNull(p.bias),
                                      .y = rows.y.data(),
                                      .mean = rows.mean.data(),
                                      .mean_lo = rows.mean_lo.data(),
                                      .rstd = rows.rstd.data()});
        NormBackward<TypeParam>(norm, {.rows = shape.positions(),
                                       .cols = shape.channels,
                                       .dy = dy.data(),
                                       .x = x.data(),
                                       .gain = OrNull(p.gain),
                                       .mean = rows.mean.data(),
                                       .mean_lo = rows.mean_lo.data(),
                                       .rstd = rows.rstd.data(),
                                       .dx = rows.dx.data()});
        // Values up to 5, gains up to 4, rstd up to 2, and 30 u for statistics, roundings and sums.
        const Real tolerance = 5 * 4 * 2 * 30 * UnitRoundoff<Compute<TypeParam>>();
        for (size_t i = 0; i < x.size(); ++i) {
          const Real y_i = ToDouble(rows.y[i]), dx_i = ToDouble(rows.dx[i]);
          ASSERT_TRUE(Near(ToDouble(y[i]), y_i, tolerance + 2 * StorageError<TypeParam>(y_i)));
          ASSERT_TRUE(Near(ToDouble(dx[i]), dx_i, tolerance + 2 * StorageError<TypeParam>(dx_i)));
        }
      }
    }
  });
}

// Documented accuracy for float, 5e-7. Two differences, the product and the rounding of rstd are
// 2.4e-7; sums of eight elements, averaged over groups, are the rest.
TEST(ChannelNormAccuracyTest, FloatIsExactAtAnyMean) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const double mean : {0.0, 1.0, -1e2, 1e4, 1e6, 1e7}) {
      for (const Shape& shape : {Shape{2, 300, 7}, {2, 64, 100}, {1, 4096, 3}}) {
        SCOPED_TRACE(testing::Message() << "mean " << mean << ", " << shape);
        const Problem<float> p(Norm::kLayerSimple, shape, mean);
        const auto out = Apply(p);
        for (int64_t b = 0; b < shape.batch; ++b) {
          for (int64_t s = 0; s < shape.spatial; ++s) {
            std::vector<Real> x = At(shape, p.x, b, s);
            for (const Real last = x.back(); Real & value : x) value -= last;
            const std::vector<Real> y = At(shape, out.y, b, s);
            const std::vector<Real> xhat =
                internal::ReferenceXhat(internal::RecipeOf(p.norm), x, p.options.eps);
            for (size_t c = 0; c < x.size(); ++c) {
              ASSERT_TRUE(Near(y[c], xhat[c], 5e-7L * std::max<Real>(1, std::abs(xhat[c]))));
            }
          }
        }
      }
    }
  });
}

TYPED_TEST(ChannelNormTest, AnyScale) {
  if constexpr (sizeof(TypeParam) > 2) {
    for (const double scale : {1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30}) {
      for (const double eps : {0.0, 1e-5}) {
        for (const Shape& shape : {Shape{2, 20, 7}, {2, 20, 100}}) {
          SCOPED_TRACE(testing::Message() << scale);
          Problem<TypeParam> layer(Norm::kLayer, shape, 3 * scale, scale);
          Problem<TypeParam> rms(Norm::kRms, shape, 3 * scale, scale);
          layer.options.eps = rms.options.eps = eps;
          ExpectAgreesWithReference(layer, Apply(layer));
          ExpectAgreesWithReference(rms, Apply(rms));
        }
      }
    }
  }
}

// The shift is the mean of a few elements of the row; an outlier among them is the worst case.
TEST(ChannelNormAccuracyTest, FloatSurvivesAnOutlierInFront) {
  for (const float outlier : {1e4f, -1e8f, 1e20f}) {
    for (const Shape& shape : {Shape{2, 300, 7}, {2, 300, 100}}) {
      Problem<float> p(Norm::kLayer, shape);
      for (int64_t s = 0; s < shape.spatial; s += 3) p.x[shape.At(1, 0, s)] = outlier;
      ExpectAgreesWithReference(p, Apply(p));
    }
  }
}

TYPED_TEST(ChannelNormTest, ConstantRowGivesBias) {
  for (const double constant : {0.0, 1.0, 1234.567, -1e4, 65504.0}) {
    for (const Shape& shape : {Shape{2, 1, 9}, {2, 5, 9}, {2, 33, 100}, {1, 300, 70}}) {
      Problem<TypeParam> p(Norm::kLayer, shape);
      std::ranges::fill(p.x, FromDouble<TypeParam>(constant));
      const auto out = Apply(p);
      for (int64_t i = 0; i < shape.total(); ++i) {
        ASSERT_TRUE(out.y[i] == p.bias[i / shape.spatial % shape.channels]) << constant;
      }
      for (const auto& dgain : out.dgain) ASSERT_EQ(ToDouble(dgain), 0);
      EXPECT_THAT(out.mean_lo, Each(0));
      p.options.eps = 0;
      EXPECT_TRUE(IsNan(Apply(p).y[0]));
    }
  }
}

TYPED_TEST(ChannelNormTest, NanAndInfinityStayAtTheirPosition) {
  for (const Shape& shape : {Shape{3, 9, 20}, {3, 9, 100}, {3, 100, 2}}) {
    const Problem<TypeParam> clean(Norm::kLayer, shape);
    Problem<TypeParam> p = clean;
    p.x[shape.At(1, 3, 1)] = FromDouble<TypeParam>(std::numeric_limits<double>::quiet_NaN());
    p.x[shape.At(2, 8, 0)] = FromDouble<TypeParam>(-std::numeric_limits<double>::infinity());
    const auto expected = Apply(clean), out = Apply(p);
    for (int64_t b = 0; b < shape.batch; ++b) {
      for (int64_t s = 0; s < shape.spatial; ++s) {
        const bool bad = (b == 1 && s == 1) || (b == 2 && s == 0);
        EXPECT_EQ(IsNan(out.rstd[b * shape.spatial + s]), bad);
        for (int64_t c = 0; c < shape.channels; ++c) {
          const int64_t i = shape.At(b, c, s);
          if (bad) {
            EXPECT_TRUE(IsNan(out.y[i]) && IsNan(out.dx[i]));
          } else {
            EXPECT_TRUE(out.y[i] == expected.y[i] && out.dx[i] == expected.dx[i]);
          }
        }
      }
    }
    EXPECT_TRUE(SameBits(out.dbias, expected.dbias));  // does not read x
  }
}

TYPED_TEST(ChannelNormTest, ASampleDependsOnlyOnItself) {
  ForEachTarget([](const std::string& target) {
    for (const Shape& shape : {Shape{3, 9, 7}, {3, 40, 20}, {3, 9, 100}, {2, 300, 70}}) {
      SCOPED_TRACE(testing::Message() << shape << " on " << target);
      const Problem<TypeParam> p(Norm::kLayer, shape);
      const auto all = Apply(p);
      const tests::NtStores nt_stores;
      for (int64_t b = 0; b < shape.batch; ++b) {
        const auto of = [&](const auto& values, int64_t n) {
          return std::vector(values.begin() + b * n, values.begin() + (b + 1) * n);
        };
        const int64_t n = shape.channels * shape.spatial;
        Problem<TypeParam> one(Norm::kLayer, {1, shape.channels, shape.spatial});
        one.x = of(p.x, n);
        one.dy = of(p.dy, n);
        one.gain = p.gain;
        one.bias = p.bias;
        const auto out = Apply(one);
        EXPECT_TRUE(SameBits(out.y, of(all.y, n)));
        EXPECT_TRUE(SameBits(out.dx, of(all.dx, n)));
        EXPECT_TRUE(SameBits(out.mean, of(all.mean, shape.spatial)));
        EXPECT_TRUE(SameBits(out.rstd, of(all.rstd, shape.spatial)));
      }
    }
  });
}

TYPED_TEST(ChannelNormTest, SameBitsForEverySplit) {
  // Tiles split over threads, and few tiles whose rows are split.
  for (const Shape& shape : {Shape{40, 60, 49}, {8, 30, 1000}, {1, 3000, 300}, {2, 30000, 7}}) {
    for (const Norm norm : {Norm::kLayer, Norm::kAda}) {
      const Problem<TypeParam> p(norm, shape);
      const auto expected = Apply(p, SerialFor);
      for (const int64_t parts : {1, 2, 3, 7}) {
        int calls = 0;
        EXPECT_EQ(Apply(p, SplitIn(parts, &calls)).DiffersIn(expected), "")
            << shape << " in " << parts;
        EXPECT_GE(calls, 2);
      }
    }
  }
}

TYPED_TEST(ChannelNormTest, SmallWorkStaysOnTheCallingThread) {
  for (const Shape& shape : {Shape{4, 10, 50}, {4, 10, 100}}) {
    int calls = 0;
    Apply(Problem<TypeParam>(Norm::kLayer, shape), SplitIn(2, &calls));
    EXPECT_EQ(calls, 0) << shape;
  }
}

TYPED_TEST(ChannelNormTest, InPlaceGivesTheSameBits) {
  for (const Shape& shape : Shapes()) {
    SCOPED_TRACE(testing::Message() << shape);
    const Problem<TypeParam> p(Norm::kLayer, shape);
    const auto expected = Apply(p);
    const auto expect_in_place = [&] {
      Problem<TypeParam> work = p;
      Result<TypeParam> out(p);
      auto forward = ForwardArgs(work, out);
      forward.y = work.x.data();
      ChannelNormForward(p.norm, forward);
      EXPECT_TRUE(SameBits(work.x, expected.y));
      work.x = p.x;
      auto backward = BackwardArgs(work, out);
      backward.dx = work.dy.data();
      ChannelNormBackward(p.norm, backward);
      EXPECT_TRUE(SameBits(work.dy, expected.dx));
      EXPECT_TRUE(SameBits(out.dgain, expected.dgain) && SameBits(out.dbias, expected.dbias));
    };
    expect_in_place();
    const tests::NtStores nt_stores;
    expect_in_place();
  }
}

// Non-temporal stores give the same bits, for whole and partial lines.
TYPED_TEST(ChannelNormTest, NtStoresGiveTheSameBits) {
  ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const Shape& shape : Shapes()) {
      const Problem<TypeParam> p(Norm::kLayer, shape);
      const auto expected = Apply(p);
      const tests::NtStores nt_stores;
      EXPECT_EQ(Apply(p).DiffersIn(expected), "") << shape;
      for (const int64_t offset : {1, 5}) {
        Result<TypeParam> out(p);
        tests::Shifted<TypeParam> y(out.y, offset), dx(out.dx, offset);
        auto forward = ForwardArgs(p, out);
        forward.y = y.begin;
        ChannelNormForward(p.norm, forward);
        EXPECT_TRUE(SameBits(y.values(), expected.y)) << shape;
        auto backward = BackwardArgs(p, out);
        backward.dx = dx.begin;
        ChannelNormBackward(p.norm, backward);
        EXPECT_TRUE(SameBits(dx.values(), expected.dx)) << shape;
      }
    }
  });
}

TYPED_TEST(ChannelNormTest, EveryOutputIsOptional) {
  for (const Shape& shape : {Shape{3, 40, 9}, {3, 5, 100}}) {
    const Problem<TypeParam> p(Norm::kLayer, shape);
    const auto expected = Apply(p);
    Result<TypeParam> out(p);
    auto forward = ForwardArgs(p, out);
    forward.mean = forward.mean_lo = forward.rstd = nullptr;
    ChannelNormForward(p.norm, forward);
    EXPECT_TRUE(SameBits(out.y, expected.y));
    out = expected;
    const Result<TypeParam> untouched(p);
    for (int wanted = 0; wanted < 8; ++wanted) {
      Result<TypeParam> fresh(p);
      auto backward = BackwardArgs(p, out);
      backward.dx = wanted & 1 ? fresh.dx.data() : nullptr;
      backward.dgain = wanted & 2 ? fresh.dgain.data() : nullptr;
      backward.dbias = wanted & 4 ? fresh.dbias.data() : nullptr;
      ChannelNormBackward(p.norm, backward);
      EXPECT_TRUE(SameBits(fresh.dx, wanted & 1 ? expected.dx : untouched.dx));
      EXPECT_TRUE(SameBits(fresh.dgain, wanted & 2 ? expected.dgain : untouched.dgain));
      EXPECT_TRUE(SameBits(fresh.dbias, wanted & 4 ? expected.dbias : untouched.dbias));
    }
  }
}

TYPED_TEST(ChannelNormTest, EmptyArraysAreValid) {
  for (const Shape& shape : {Shape{0, 3, 5}, {2, 3, 0}, {2, 0, 5}}) {
    const auto out = Apply(Problem<TypeParam>(Norm::kLayer, shape));
    for (const auto& rstd : out.rstd) EXPECT_TRUE(IsNan(rstd));
    for (const auto& dgain : out.dgain) EXPECT_EQ(ToDouble(dgain), 0);
    for (const auto& dbias : out.dbias) EXPECT_EQ(ToDouble(dbias), 0);
  }
}

TEST(ChannelNormErrorTest, Texts) {
  const Problem<float> p(Norm::kLayer, {2, 3, 4});
  Result<float> out(p);
  const auto forward = [&](auto&& change, Norm norm = Norm::kLayer) {
    auto args = ForwardArgs(p, out);
    NormOptions options;
    change(args, options);
    return ErrorOf([&] { ChannelNormForward(norm, args, options); });
  };
  EXPECT_EQ(forward([](auto&, auto&) {}), "");
  EXPECT_EQ(forward([](auto& a, auto&) { a.batch = -1; }),
            "[ChannelNormForward] batch must be at least 0, got -1");
  EXPECT_EQ(forward([](auto&, auto& o) { o.eps = -1; }),
            "[ChannelNormForward] eps must be finite and at least 0, got -1");
  EXPECT_EQ(forward([](auto& a, auto&) { a.x = nullptr; }),
            "[ChannelNormForward] x must point to 96 bytes, got null");
  EXPECT_EQ(forward([](auto& a, auto&) { a.y = const_cast<float*>(a.x) + 1; }),
            "[ChannelNormForward] y must not overlap x, got 92 bytes in common");
  EXPECT_EQ(forward([](auto&, auto&) {}, Norm::kLayerSimple),
            "[ChannelNormForward] gain must be null for a norm without gain and bias, got an "
            "address");
  EXPECT_EQ(
      forward([](auto& a, auto&) { a.channels = 1, a.gain = a.bias = nullptr; }, Norm::kAdaAsCoded),
      "[ChannelNormForward] channels must be at least 2 for a norm with the unbiased "
      "deviation, got 1");
  const auto backward = [&](auto&& change, Norm norm = Norm::kLayer) {
    auto args = BackwardArgs(p, out);
    change(args);
    return ErrorOf([&] { ChannelNormBackward(norm, args); });
  };
  EXPECT_EQ(backward([](auto&) {}), "");
  EXPECT_EQ(backward([](auto& a) { a.spatial = -4; }),
            "[ChannelNormBackward] spatial must be at least 0, got -4");
  EXPECT_EQ(backward([](auto& a) { a.mean_lo = nullptr; }),
            "[ChannelNormBackward] mean_lo must point to 32 bytes, got null");
  EXPECT_EQ(backward([](auto& a) { a.mean = a.mean_lo = nullptr; }, Norm::kRms), "");
  EXPECT_EQ(backward([](auto& a) { a.dx = const_cast<float*>(a.x); }),
            "[ChannelNormBackward] dx must not overlap x, got 96 bytes in common");
  EXPECT_EQ(backward([](auto& a) { a.gain = nullptr; }, Norm::kAda),
            "[ChannelNormBackward] dgain must be null for a norm without gain and bias, got an "
            "address");
}

}  // namespace
}  // namespace planish
