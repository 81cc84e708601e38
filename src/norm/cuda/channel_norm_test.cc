#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "src/norm/cuda/channel_norm_testing.h"

// Norms over channels on a GPU against the CPU's reference. Compiled into two programs: one runs on
// the GPU and skips without one, the other runs on the emulation.
namespace planish {
namespace {

using tests::FromDouble;
using tests::IsNan;
using tests::OnDevice;
using tests::RunOnDevice;
using tests::SameBits;
using tests::Shape;
using tests::ToDouble;
using tests::WithWorkspace;
using tests::channel_norm::ApplyOnDevice;
using tests::channel_norm::ExpectAgreesWithReference;
using tests::channel_norm::Problem;
using tests::channel_norm::Result;

template <class T>
class CudaChannelNormTest : public tests::GpuTest {};
using Types = testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(CudaChannelNormTest, Types);

TYPED_TEST(CudaChannelNormTest, AgreesWithReference) {
  for (const Shape& shape : {Shape{1, 1, 2},
                             {3, 1, 7},
                             {2, 1, 100},
                             {3, 2, 1},
                             {2, 100, 1},
                             {1, 3, 2},
                             {2, 50, 3},
                             {1, 200, 2},
                             {2, 33, 13},
                             {5, 17, 49},
                             {1, 7, 64},
                             {2, 8, 65},
                             {2, 9, 96},
                             {1, 5, 257},
                             {1, 3, 700},
                             {1, 600, 8},
                             {40, 4, 5},
                             {1, 900, 3}}) {
    const Problem<TypeParam> layer(Norm::kLayer, shape), rms(Norm::kRms, shape);
    ExpectAgreesWithReference(layer, ApplyOnDevice(layer));
    ExpectAgreesWithReference(rms, ApplyOnDevice(rms));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TYPED_TEST(CudaChannelNormTest, EveryWidthAgreesWithReference) {
  for (int64_t width = 1; width <= 67; width += width < 18 ? 1 : 7) {
    for (const Shape& shape : {Shape{1, width, 3}, {2, 3, width}}) {
      const Problem<TypeParam> p(Norm::kLayer, shape);
      ExpectAgreesWithReference(p, ApplyOnDevice(p));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(CudaChannelNormTest, EveryNormAgreesWithReference) {
  for (const Norm norm : tests::kNorms) {
    for (const Shape& shape : {Shape{2, 33, 13}, {2, 9, 64}}) {
      const Problem<TypeParam> p(norm, shape);
      ExpectAgreesWithReference(p, ApplyOnDevice(p));
    }
  }
}

TYPED_TEST(CudaChannelNormTest, GainAndBiasAreOptionalAndMayBeFloat) {
  const Shape shape = {2, 9, 40};
  for (int given = 0; given < 4; ++given) {
    Problem<TypeParam> p(Norm::kLayer, shape);
    if (!(given & 1)) p.gain.clear();
    if (!(given & 2)) p.bias.clear();
    ExpectAgreesWithReference(p, ApplyOnDevice(p));
  }
  if constexpr (!std::is_same_v<TypeParam, float>) {
    const Problem<TypeParam, float> p(Norm::kLayer, shape);
    ExpectAgreesWithReference(p, ApplyOnDevice(p));
  }
}

TYPED_TEST(CudaChannelNormTest, AnyLayout) {
  for (const Norm norm : {Norm::kLayer, Norm::kDetach}) {
    for (const Shape& shape : {Shape{2, 33, 8}, {3, 5, 72}, {2, 20, 7}}) {
      const Problem<TypeParam> p(norm, shape);
      EXPECT_EQ(ApplyOnDevice(p, {.in_place = true}).DiffersIn(ApplyOnDevice(p)), "") << shape;
      ExpectAgreesWithReference(p, ApplyOnDevice(p, {.offset = 1}));
      ExpectAgreesWithReference(p, ApplyOnDevice(p, {.offset = 3, .in_place = true}));
    }
  }
}

// Rows have a mean a million deviations from 0, or a first element far from the others. The first
// element is the origin of the sums.
TYPED_TEST(CudaChannelNormTest, ExactAtAnyMean) {
  for (const Shape& shape : {Shape{2, 300, 7}, {2, 64, 32}}) {
    if constexpr (sizeof(TypeParam) > 2) {
      for (const double mean : {-1e2, 1e4, 1e6}) {
        const Problem<TypeParam> p(Norm::kLayer, shape, mean);
        ExpectAgreesWithReference(p, ApplyOnDevice(p));
      }
      for (const double outlier : {1e4, -1e8, 1e20}) {
        // For doubles, the sum that gives the second shift loses digits to the outlier.
        if (std::is_same_v<TypeParam, double> && outlier > 1e8) continue;
        Problem<TypeParam> p(Norm::kLayer, shape);
        for (int64_t s = 0; s < shape.spatial; s += 3) {
          p.x[shape.At(1, 0, s)] = static_cast<TypeParam>(outlier);
        }
        ExpectAgreesWithReference(p, ApplyOnDevice(p));
      }
    } else {
      const Problem<TypeParam> p(Norm::kLayer, shape, 3e3, 300);
      ExpectAgreesWithReference(p, ApplyOnDevice(p));
    }
  }
}

TYPED_TEST(CudaChannelNormTest, AnyScale) {
  if constexpr (sizeof(TypeParam) > 2) {
    for (const double scale : {1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30}) {
      for (const double eps : {0.0, 1e-5}) {
        const Shape shape = {2, 20, 9};
        Problem<TypeParam> layer(Norm::kLayer, shape, 3 * scale, scale);
        Problem<TypeParam> rms(Norm::kRms, shape, 3 * scale, scale);
        layer.options.eps = rms.options.eps = eps;
        ExpectAgreesWithReference(layer, ApplyOnDevice(layer));
        ExpectAgreesWithReference(rms, ApplyOnDevice(rms));
      }
    }
  }
}

TYPED_TEST(CudaChannelNormTest, ConstantRowGivesBias) {
  for (const double constant : {0.0, 1234.567, 65504.0}) {
    for (const Shape& shape : {Shape{2, 1, 9}, {2, 5, 16}, {1, 300, 7}}) {
      Problem<TypeParam> p(Norm::kLayer, shape);
      std::ranges::fill(p.x, FromDouble<TypeParam>(constant));
      const auto out = ApplyOnDevice(p);
      for (int64_t i = 0; i < shape.total(); ++i) {
        ASSERT_TRUE(out.y[i] == p.bias[i / shape.spatial % shape.channels]) << constant;
      }
      for (const auto& dgain : out.dgain) ASSERT_EQ(ToDouble(dgain), 0);
      EXPECT_THAT(out.mean_lo, testing::Each(0));
      p.options.eps = 0;
      EXPECT_TRUE(IsNan(ApplyOnDevice(p).y[0]));
    }
  }
}

TYPED_TEST(CudaChannelNormTest, NanAndInfinityStayAtTheirPosition) {
  for (const Shape& shape : {Shape{3, 9, 20}, {3, 9, 64}, {3, 100, 2}}) {
    const Problem<TypeParam> clean(Norm::kLayer, shape);
    Problem<TypeParam> p = clean;
    p.x[shape.At(1, 3, 1)] = FromDouble<TypeParam>(std::numeric_limits<double>::quiet_NaN());
    p.x[shape.At(2, 0, 0)] = FromDouble<TypeParam>(-std::numeric_limits<double>::infinity());
    const auto expected = ApplyOnDevice(clean), out = ApplyOnDevice(p);
    for (int64_t b = 0; b < shape.batch; ++b) {
      for (int64_t s = 0; s < shape.spatial; ++s) {
        const bool bad = (b == 1 && s == 1) || (b == 2 && s == 0);
        EXPECT_EQ(IsNan(out.rstd[b * shape.spatial + s]), bad);
        for (int64_t c = 0; c < shape.channels; ++c) {
          const int64_t i = shape.At(b, c, s);
          if (bad) {
            ASSERT_TRUE(IsNan(out.y[i]) && IsNan(out.dx[i]));
          } else {
            ASSERT_TRUE(out.y[i] == expected.y[i] && out.dx[i] == expected.dx[i]);
          }
        }
      }
    }
    EXPECT_TRUE(SameBits(out.dbias, expected.dbias));  // does not read x
  }
}

TYPED_TEST(CudaChannelNormTest, EveryOutputIsOptional) {
  const Problem<TypeParam> p(Norm::kLayer, {3, 5, 40});
  const internal::Recipe recipe = internal::RecipeOf(p.norm);
  const auto expected = ApplyOnDevice(p);
  Result<TypeParam> out(p);
  auto forward = ForwardArgs(p, out);
  forward.mean = forward.mean_lo = forward.rstd = nullptr;
  RunOnDevice(
      forward, {}, [&](const auto& args) { cuda::ChannelNormForward(p.norm, args); }, recipe);
  EXPECT_TRUE(SameBits(out.y, expected.y));
  tests::ExpectEachSubsetOfGradients(
      p, expected,
      [&](const auto& args) {
        cuda::ChannelNormBackward(p.norm, args, WithWorkspace(cuda::NormOptions(), args));
      },
      recipe);
}

TYPED_TEST(CudaChannelNormTest, EmptyArraysAreValid) {
  for (const Shape& shape : {Shape{0, 3, 5}, {2, 3, 0}, {2, 0, 5}}) {
    const auto out = ApplyOnDevice(Problem<TypeParam>(Norm::kLayer, shape));
    for (const auto& rstd : out.rstd) EXPECT_TRUE(IsNan(rstd));
    for (const auto& dgain : out.dgain) EXPECT_EQ(ToDouble(dgain), 0);
    for (const auto& dbias : out.dbias) EXPECT_EQ(ToDouble(dbias), 0);
  }
}

class CudaChannelNormErrorTest : public tests::GpuTest {};

// Errors are those of the CPU, and those of the workspace.
TEST_F(CudaChannelNormErrorTest, Texts) {
  const std::vector<float> zeros(24);
  OnDevice<float> x(zeros), y(zeros), gain(zeros);
  const auto forward = [&](auto&& change, Norm norm = Norm::kLayer) {
    ChannelNormForwardArgs<float> args = {
        .batch = 2, .channels = 3, .spatial = 4, .x = x.data(), .gain = gain.data(), .y = y.data()};
    change(args);
    return tests::ErrorOf([&] { cuda::ChannelNormForward(norm, args); });
  };
  EXPECT_EQ(forward([](auto&) {}), "");
  EXPECT_EQ(forward([](auto& a) { a.batch = -1; }),
            "[ChannelNormForward] batch must be at least 0, got -1");
  EXPECT_EQ(forward([](auto& a) { a.y = const_cast<float*>(a.x) + 1; }),
            "[ChannelNormForward] y must not overlap x, got 92 bytes in common");
  EXPECT_EQ(forward([](auto&) {}, Norm::kLayerSimple),
            "[ChannelNormForward] gain must be null for a norm without gain and bias, got an "
            "address");
  const ChannelNormBackwardArgs<float> backward = {.batch = 2,
                                                   .channels = 3,
                                                   .spatial = 4,
                                                   .dy = y.data(),
                                                   .x = x.data(),
                                                   .rstd = gain.data(),
                                                   .dgain = gain.data() + 12};
  const int64_t needed = cuda::WorkspaceBytes(backward);
  EXPECT_EQ(tests::ErrorOf([&] { cuda::ChannelNormBackward(Norm::kRms, backward); }),
            "[ChannelNormBackward] workspace must point to " + std::to_string(needed) +
                " bytes, got null");
}

}  // namespace
}  // namespace planish
