#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "src/norm/channels/batch_norm_testing.h"
#include "src/norm/cuda/batch_norm_testing.h"

// Batch norm on a GPU against the CPU's reference. Compiled into two programs: one runs on the GPU
// and skips without one, the other runs on the emulation.
namespace planish {
namespace {

using tests::FromDouble;
using tests::IsNan;
using tests::Near;
using tests::OnDevice;
using tests::Real;
using tests::RunOnDevice;
using tests::SameBits;
using tests::Shape;
using tests::StorageError;
using tests::ToDouble;
using tests::UnitRoundoff;
using tests::WithWorkspace;
using tests::batch_norm::ApplyOnDevice;
using tests::batch_norm::ChannelOf;
using tests::batch_norm::ExpectAgreesWithReference;
using tests::batch_norm::Problem;
using tests::batch_norm::Result;

template <class T>
class CudaBatchNormTest : public tests::GpuTest {};
using Types = testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(CudaBatchNormTest, Types);

// Columns and runs, from one element to several parts; odd sizes, and sizes that are read in packs.
std::vector<Shape> Shapes() {
  std::vector<Shape> shapes = {
      {2, 1, 1},     {3, 1, 1},    {1, 1, 2},    {1, 3, 5},    {4, 2, 1},    {4, 2, 3},
      {4, 17, 1},    {4, 16, 1},   {40, 100, 1}, {9, 511, 1},  {17, 512, 1}, {3, 264, 1},
      {130, 3, 1},   {9000, 1, 1}, {1001, 7, 1}, {2, 3, 49},   {9, 8, 49},   {9, 5, 63},
      {3, 5, 64},    {3, 4, 65},   {2, 33, 100}, {1, 2, 1025}, {2, 1, 4000}, {1, 2, 16385},
      {1, 1, 40000}, {40, 20, 12}, {1, 600, 3},  {30, 3, 81},  {5, 3, 512},  {3, 2, 72}};
  for (int64_t c = 1; c <= 67; c += 11) shapes.push_back({5, c, 1});
  for (int64_t s = 1; s <= 67; s += 11) shapes.push_back({3, 2, s});
  return shapes;
}

TYPED_TEST(CudaBatchNormTest, AgreesWithReference) {
  for (const Shape& shape : Shapes()) {
    const Problem<TypeParam> p(shape);
    ExpectAgreesWithReference(p, ApplyOnDevice(p));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TYPED_TEST(CudaBatchNormTest, UnbiasedAgreesWithReference) {
  for (const Shape& shape : {Shape{4, 10, 1}, {2, 3, 1}, {4, 100, 1}, {1, 3, 70}, {300, 5, 2}}) {
    Problem<TypeParam> p(shape);
    p.options.unbiased = true;
    p.options.momentum.reset();
    p.options.batches = 3;
    ExpectAgreesWithReference(p, ApplyOnDevice(p));
  }
}

TYPED_TEST(CudaBatchNormTest, GainAndBiasAreOptionalAndMayBeFloat) {
  for (const Shape& shape : {Shape{9, 10, 1}, {3, 4, 100}}) {
    const Problem<TypeParam> none(shape, false);
    ExpectAgreesWithReference(none, ApplyOnDevice(none));
    Problem<TypeParam> gain(shape), bias(shape);
    gain.bias.clear();
    bias.gain.clear();
    ExpectAgreesWithReference(gain, ApplyOnDevice(gain));
    ExpectAgreesWithReference(bias, ApplyOnDevice(bias));
    if constexpr (!std::is_same_v<TypeParam, float>) {
      const Problem<TypeParam, float> of_float(shape);
      ExpectAgreesWithReference(of_float, ApplyOnDevice(of_float));
    }
  }
}

TYPED_TEST(CudaBatchNormTest, AnyLayout) {
  for (const Shape& shape : {Shape{20, 24, 1}, {5, 8, 9}, {3, 2, 128}, {1, 1, 20000}}) {
    const Problem<TypeParam> p(shape);
    const auto expected = ApplyOnDevice(p);
    EXPECT_EQ(ApplyOnDevice(p, {.in_place = true}).DiffersIn(expected), "") << shape;
    // Elements read one by one are summed in another order.
    ExpectAgreesWithReference(p, ApplyOnDevice(p, {.offset = 1}));
    ExpectAgreesWithReference(p, ApplyOnDevice(p, {.offset = 3, .in_place = true}));
  }
}

// Rows have a mean a million deviations from 0, or a first element far from the others. The first
// element is the origin of the sums.
TYPED_TEST(CudaBatchNormTest, ExactAtAnyMean) {
  for (const Shape& shape : {Shape{50, 20, 1}, {300, 2, 1}, {2, 3, 100}, {1, 1, 20000}}) {
    if constexpr (sizeof(TypeParam) > 2) {
      for (const double mean : {-1e2, 1e4, 1e6}) {
        const Problem<TypeParam> p(shape, true, mean);
        ExpectAgreesWithReference(p, ApplyOnDevice(p));
      }
      for (const double outlier : {1e4, -1e8, 1e20}) {
        // For doubles, the sum that gives the second shift loses digits to the outlier.
        if (std::is_same_v<TypeParam, double> && outlier > 1e8) continue;
        Problem<TypeParam> p(shape);
        for (int64_t c = 0; c < shape.channels; ++c) {
          p.x[shape.At(0, c, 0)] = static_cast<TypeParam>(outlier);
        }
        ExpectAgreesWithReference(p, ApplyOnDevice(p));
      }
    } else {
      const Problem<TypeParam> p(shape, true, 3e3, 300);
      ExpectAgreesWithReference(p, ApplyOnDevice(p));
    }
  }
}

TYPED_TEST(CudaBatchNormTest, AnyScale) {
  if constexpr (sizeof(TypeParam) > 2) {
    for (const double scale : {1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30}) {
      for (const double eps : {0.0, 1e-5}) {
        for (const Shape& shape : {Shape{20, 30, 1}, {2, 3, 100}}) {
          Problem<TypeParam> p(shape, true, 3 * scale, scale);
          p.options.eps = eps;
          p.options.momentum = 0;  // the square of 1e30 exceeds float
          const auto out = ApplyOnDevice(p);
          for (const auto rstd : out.rstd) EXPECT_TRUE(std::isfinite(rstd));
          if (scale < 1e19 || std::is_same_v<TypeParam, double>) ExpectAgreesWithReference(p, out);
          // Without eps, scaling by a power of two scales everything.
          if (eps == 0) {
            Problem<TypeParam> near = p;
            const double factor = std::exp2(-std::round(std::log2(scale)));
            for (TypeParam& value : near.x) value = static_cast<TypeParam>(value * factor);
            EXPECT_TRUE(SameBits(ApplyOnDevice(near).y, out.y)) << scale;
          }
        }
      }
    }
  }
}

TYPED_TEST(CudaBatchNormTest, ConstantChannelGivesBias) {
  for (const double constant : {0.0, 1234.567, 65504.0}) {
    for (const Shape& shape : {Shape{1, 9, 1}, {2, 9, 1}, {33, 9, 1}, {3, 2, 100}}) {
      Problem<TypeParam> p(shape);
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

TYPED_TEST(CudaBatchNormTest, NansStayInTheirChannel) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const Shape& shape : {Shape{9, 7, 1}, {3, 7, 100}, {1, 7, 9000}}) {
    const Problem<TypeParam> clean(shape);
    Problem<TypeParam> p = clean;
    p.x[shape.At(shape.batch - 1, 1, 0)] = FromDouble<TypeParam>(NAN);
    p.x[shape.At(0, 3, 0)] = FromDouble<TypeParam>(inf);
    p.x[shape.At(shape.batch - 1, 5, shape.spatial - 1)] = FromDouble<TypeParam>(-inf);
    const auto expected = ApplyOnDevice(clean), out = ApplyOnDevice(p);
    for (int64_t c = 0; c < shape.channels; ++c) {
      const bool bad = c == 1 || c == 3 || c == 5;
      EXPECT_EQ(IsNan(out.rstd[c]), bad) << c;
      EXPECT_EQ(IsNan(out.running_mean[c]), bad) << c;
      EXPECT_EQ(IsNan(out.running_var[c]), bad) << c;
      for (int64_t b = 0; b < shape.batch; ++b) {
        for (int64_t s = 0; s < shape.spatial; ++s) {
          const int64_t i = shape.At(b, c, s);
          if (bad) {
            ASSERT_TRUE(IsNan(out.y[i]) && IsNan(out.dx[i])) << c;
          } else {
            ASSERT_TRUE(out.y[i] == expected.y[i] && out.dx[i] == expected.dx[i]) << c;
          }
        }
      }
    }
  }
}

TYPED_TEST(CudaBatchNormTest, EmptyArraysAreValid) {
  for (const Shape& shape : {Shape{0, 9, 1}, {3, 9, 0}}) {
    const auto out = ApplyOnDevice(Problem<TypeParam>(shape));
    for (int64_t c = 0; c < 9; ++c) {
      EXPECT_TRUE(IsNan(out.mean[c]) && IsNan(out.rstd[c]));
      EXPECT_EQ(out.running_mean[c], 2);
      EXPECT_EQ(out.running_var[c], 3);
      EXPECT_EQ(ToDouble(out.dgain[c]), 0);
      EXPECT_EQ(ToDouble(out.dbias[c]), 0);
    }
  }
  ApplyOnDevice(Problem<TypeParam>({1, 0, 1}));
}

TYPED_TEST(CudaBatchNormTest, EveryOutputIsOptional) {
  const cuda::BatchNormOptions options;
  for (const Shape& shape : {Shape{9, 12, 1}, {3, 4, 100}}) {
    const Problem<TypeParam> p(shape);
    const auto expected = ApplyOnDevice(p);
    Result<TypeParam> out(p);
    auto forward = ForwardArgs(p, out);
    forward.mean = forward.mean_lo = forward.rstd = nullptr;
    forward.running_mean = forward.running_var = nullptr;
    RunOnDevice(forward, {}, [&](const auto& args) {
      cuda::BatchNormForward(args, WithWorkspace(options, args));
    });
    EXPECT_TRUE(SameBits(out.y, expected.y));
    tests::ExpectEachSubsetOfGradients(p, expected, [&](const auto& args) {
      cuda::BatchNormBackward(args, WithWorkspace(options, args));
    });
  }
}

TYPED_TEST(CudaBatchNormTest, EvaluationAgreesWithReference) {
  using T = TypeParam;
  using C = Compute<T>;
  constexpr Real u = UnitRoundoff<C>();
  for (const Shape& shape :
       {Shape{1, 1, 1}, {9, 17, 1}, {40, 24, 1}, {3, 5, 9}, {4, 3, 200}, {1, 2, 20000}}) {
    SCOPED_TRACE(testing::Message() << shape);
    const Problem<T> p(shape);
    std::mt19937 random(7);
    const auto mean = tests::Random<C>(shape.channels, random);
    auto var = tests::Random<C>(shape.channels, random);
    for (C& value : var) value = value * value;
    Result<T> out(p);
    const cuda::BatchNormOptions options;
    RunOnDevice(EvaluateArgs(p, mean, var, out), {}, [&](const auto& args) {
      cuda::BatchNormEvaluate(args, WithWorkspace(options, args));
    });
    const auto backward = [&](T* dx, T* dgain, T* dbias) {
      auto backward_args = EvaluateBackwardArgs(p, mean, var, out);
      if (dgain == nullptr) backward_args.x = nullptr, backward_args.running_mean = nullptr;
      backward_args.dx = dx, backward_args.dgain = dgain, backward_args.dbias = dbias;
      RunOnDevice(backward_args, {}, [&](const auto& args) {
        cuda::BatchNormEvaluateBackward(args, WithWorkspace(options, args));
      });
    };
    backward(out.dx.data(), out.dgain.data(), nullptr);
    backward(nullptr, nullptr, out.dbias.data());
    for (int64_t c = 0; c < shape.channels; ++c) {
      const std::vector<Real> xs = ChannelOf(shape, p.x, c), dys = ChannelOf(shape, p.dy, c);
      const std::vector<Real> ys = ChannelOf(shape, out.y, c), dxs = ChannelOf(shape, out.dx, c);
      const Real rstd = 1 / std::sqrt(Real{var[c]} + 1e-5L);
      const Real g = ToDouble(p.gain[c]), b = ToDouble(p.bias[c]);
      Real sum = 0, sum_xhat = 0, abs = 0, abs_xhat = 0;
      for (size_t i = 0; i < xs.size(); ++i) {
        const Real xhat = (xs[i] - mean[c]) * rstd, value = g * xhat + b, dx_i = g * rstd * dys[i];
        // Difference, scale, product and sum.
        const Real error = 4 * u * (std::abs(g * xhat) + std::abs(b));
        ASSERT_TRUE(Near(ys[i], value, error + StorageError<T>(std::abs(value) + error)));
        ASSERT_TRUE(Near(dxs[i], dx_i, 3 * u * std::abs(dx_i) + StorageError<T>(dx_i)));
        sum += dys[i];
        sum_xhat += dys[i] * xhat;
        abs += std::abs(dys[i]);
        abs_xhat += std::abs(dys[i] * xhat);
      }
      // xhat has four roundings. The sums are in double and rounded once.
      const Real n = static_cast<Real>(shape.positions()) * 0x1p-53L;
      ASSERT_TRUE(Near(ToDouble(out.dgain[c]), sum_xhat,
                       (6 * u + n) * abs_xhat + StorageError<T>(std::abs(sum_xhat) * 1.01L)));
      ASSERT_TRUE(Near(ToDouble(out.dbias[c]), sum,
                       (2 * u + n) * abs + StorageError<T>(std::abs(sum) * 1.01L)));
    }
  }
}

class CudaBatchNormErrorTest : public tests::GpuTest {};

// Errors are those of the CPU, and those of the workspace.
TEST_F(CudaBatchNormErrorTest, Texts) {
  OnDevice<float> x(std::vector<float>(6)), y(std::vector<float>(6)), three(std::vector<float>(3));
  const int64_t needed =
      cuda::WorkspaceBytes(BatchNormForwardArgs<float>{.batch = 2, .channels = 3});
  OnDevice<char> space(std::vector<char>(static_cast<size_t>(needed)));
  const auto error = [&](auto&& change) {
    BatchNormForwardArgs<float> args = {
        .batch = 2, .channels = 3, .x = x.data(), .y = y.data(), .running_var = three.data()};
    cuda::BatchNormOptions options = {.workspace = space.data(), .workspace_bytes = needed};
    change(args, options);
    return tests::ErrorOf([&] { cuda::BatchNormForward(args, options); });
  };
  EXPECT_EQ(error([](auto&, auto&) {}), "");
  EXPECT_EQ(error([](auto& a, auto&) { a.batch = -1; }),
            "[BatchNormForward] batch must be at least 0, got -1");
  EXPECT_EQ(error([](auto&, auto& o) { o.momentum = 1.5; }),
            "[BatchNormForward] momentum must be in [0, 1], got 1.5");
  EXPECT_EQ(error([](auto& a, auto&) { a.batch = 1; }),
            "[BatchNormForward] batch * spatial must be at least 2 for an unbiased variance, got "
            "1");
  EXPECT_EQ(error([](auto& a, auto&) { a.y = nullptr; }),
            "[BatchNormForward] y must point to 24 bytes, got null");
  EXPECT_EQ(
      error([](auto&, auto& o) { o.workspace = nullptr; }),
      "[BatchNormForward] workspace must point to " + std::to_string(needed) + " bytes, got null");
  EXPECT_EQ(error([](auto&, auto& o) { --o.workspace_bytes; }),
            "[BatchNormForward] workspace_bytes must be at least " + std::to_string(needed) +
                ", got " + std::to_string(needed - 1));
  EXPECT_EQ(error([](auto&, auto& o) { o.workspace = static_cast<char*>(o.workspace) + 4; }),
            "[BatchNormForward] workspace must be aligned to 16 bytes, got an address 4 bytes "
            "past a multiple of 16");
  EXPECT_EQ(tests::ErrorOf([] {
              cuda::WorkspaceBytes(BatchNormForwardArgs<float>{.batch = 1, .channels = -2});
            }),
            "[WorkspaceBytes] channels must be at least 0, got -2");
}

}  // namespace
}  // namespace planish
