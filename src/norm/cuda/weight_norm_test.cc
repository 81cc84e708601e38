#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/norm/cuda/weight_norm_testing.h"

// Weight normalization on a GPU against the CPU's reference. Compiled into two programs: one runs
// on the GPU and skips without one, the other runs on the emulation.
namespace planish {
namespace {

using tests::FromDouble;
using tests::IsNan;
using tests::OnDevice;
using tests::RunOnDevice;
using tests::SameBits;
using tests::ToDouble;
using tests::WithWorkspace;
using tests::weight_norm::ApplyOnDevice;
using tests::weight_norm::ExpectAgreesWithReference;
using tests::weight_norm::Problem;
using tests::weight_norm::Result;

template <class T>
class CudaWeightNormTest : public tests::GpuTest {};
using Types = testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(CudaWeightNormTest, Types);

// Rows of one thread, several threads, a warp, a block and several blocks.
TYPED_TEST(CudaWeightNormTest, AgreesWithReference) {
  for (const int64_t cols : {1,  2,   3,   7,   8,    9,    15,   16,   17,   31,   33,    40,   63,
                             64, 129, 256, 768, 1000, 1024, 2047, 2048, 2049, 4097, 16384, 16392}) {
    const Problem<TypeParam> p(3, cols);
    ExpectAgreesWithReference(p, ApplyOnDevice(p));
  }
  for (const auto& [rows, cols] :
       {std::pair{1, 1}, {1000, 1}, {500, 7}, {300, 24}, {40, 129}, {2, 40000}}) {
    const Problem<TypeParam> p(rows, cols);
    ExpectAgreesWithReference(p, ApplyOnDevice(p));
  }
}

TYPED_TEST(CudaWeightNormTest, LengthsInFloat) {
  if constexpr (!std::is_same_v<TypeParam, float>) {
    const Problem<TypeParam, float> p(9, 100);
    ExpectAgreesWithReference(p, ApplyOnDevice(p));
  }
}

TYPED_TEST(CudaWeightNormTest, AnyLayout) {
  for (const auto& [rows, cols] : {std::pair{30, 7}, {9, 64}, {2, 20000}}) {
    const Problem<TypeParam> p(rows, cols);
    EXPECT_EQ(ApplyOnDevice(p, {.in_place = true}).DiffersIn(ApplyOnDevice(p)), "");
    ExpectAgreesWithReference(p, ApplyOnDevice(p, {.offset = 1}));
    ExpectAgreesWithReference(p, ApplyOnDevice(p, {.offset = 3, .in_place = true}));
  }
}

TYPED_TEST(CudaWeightNormTest, AnyScale) {
  if constexpr (sizeof(TypeParam) > 2) {
    for (const double scale : {1e-30, 1e-20, 1e20, 1e30}) {
      for (const int64_t cols : {5, 100, 20000}) {
        const Problem<TypeParam> p(3, cols, scale);
        ExpectAgreesWithReference(p, ApplyOnDevice(p));
      }
    }
  }
}

// Rows with doubles whose squares overflow or underflow, and with others.
TYPED_TEST(CudaWeightNormTest, SquaresNeitherOverflowNorVanish) {
  if constexpr (std::is_same_v<TypeParam, double>) {
    for (const double scale : {1e-290, 1e-200, 4096.0, 1e200, 1e300}) {
      const Problem<double> p(3, 100, scale);
      ExpectAgreesWithReference(p, ApplyOnDevice(p));
    }
    Problem<double> p(2, 40);
    for (size_t i = 0; i < p.v.size(); ++i) p.v[i] *= std::pow(10, static_cast<double>(i % 20));
    ExpectAgreesWithReference(p, ApplyOnDevice(p));
  }
}

TYPED_TEST(CudaWeightNormTest, ZerosNanAndInfinityStayInTheirRow) {
  for (const int64_t cols : {2, 100, 4000}) {
    const Problem<TypeParam> clean(7, cols);
    Problem<TypeParam> p = clean;
    std::fill_n(p.v.begin() + cols, cols, FromDouble<TypeParam>(0));
    p.v[3 * cols] = FromDouble<TypeParam>(std::numeric_limits<double>::quiet_NaN());
    p.v[5 * cols + 1] = FromDouble<TypeParam>(-std::numeric_limits<double>::infinity());
    const auto expected = ApplyOnDevice(clean), out = ApplyOnDevice(p);
    EXPECT_EQ(out.norm[1], 0);
    for (int64_t r = 0; r < 7; ++r) {
      for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
        if (r == 1 || r == 3 || r == 5) {
          ASSERT_TRUE(IsNan(out.w[i]) && IsNan(out.dv[i])) << r;
        } else {
          ASSERT_TRUE(out.w[i] == expected.w[i] && out.dv[i] == expected.dv[i]) << r;
        }
      }
    }
  }
}

TYPED_TEST(CudaWeightNormTest, ARowDependsOnlyOnItself) {
  for (const int64_t cols : {1, 8, 64, 2049, 20001}) {
    const Problem<TypeParam> p(11, cols);
    const auto all = ApplyOnDevice(p);
    const int64_t r = 4;
    Problem<TypeParam> one(1, cols);
    const auto row = [&](const auto& values) {
      return std::vector(values.begin() + r * cols, values.begin() + (r + 1) * cols);
    };
    one.v = row(p.v);
    one.dw = row(p.dw);
    one.g = {p.g[r]};
    const auto out = ApplyOnDevice(one);
    EXPECT_TRUE(SameBits(out.w, row(all.w)) && SameBits(out.dv, row(all.dv))) << cols;
    EXPECT_TRUE(SameBits(out.norm, {all.norm[r]}) && SameBits(out.dg, {all.dg[r]})) << cols;
  }
}

TYPED_TEST(CudaWeightNormTest, EveryOutputIsOptional) {
  const cuda::WeightNormOptions options;
  for (const int64_t rows : {1, 9}) {
    const Problem<TypeParam> p(rows, 100);
    const auto expected = ApplyOnDevice(p);
    const Result<TypeParam> unset(p);
    Result<TypeParam> out(p);
    auto forward = ForwardArgs(p, out);
    forward.norm = nullptr;
    RunOnDevice(forward, {}, [&](const auto& args) {
      cuda::WeightNormForward(args, WithWorkspace(options, args));
    });
    EXPECT_TRUE(SameBits(out.w, expected.w));
    out.norm = expected.norm;
    const auto backward = [&](auto&& change) {
      auto changed = BackwardArgs(p, out);
      change(changed);
      RunOnDevice(changed, {}, [&](const auto& args) {
        cuda::WeightNormBackward(args, WithWorkspace(options, args));
      });
    };
    backward([](auto& args) {
      args.g = nullptr;
      args.dv = nullptr;
    });
    EXPECT_TRUE(SameBits(out.dv, unset.dv) && SameBits(out.dg, expected.dg));
    backward([](auto& args) { args.dg = nullptr; });
    EXPECT_TRUE(SameBits(out.dv, expected.dv));
  }
}

TYPED_TEST(CudaWeightNormTest, EmptyArraysAreValid) {
  ApplyOnDevice(Problem<TypeParam>(0, 5));
  const auto out = ApplyOnDevice(Problem<TypeParam>(3, 0));
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(out.norm[r], 0);
    EXPECT_EQ(ToDouble(out.dg[r]), 0);
  }
}

class CudaWeightNormErrorTest : public tests::GpuTest {};

// Errors are those of the CPU, and those of the workspace.
TEST_F(CudaWeightNormErrorTest, Texts) {
  OnDevice<float> v(std::vector<float>(6)), w(std::vector<float>(6)), g(std::vector<float>(2));
  const int64_t needed = cuda::WorkspaceBytes(WeightNormForwardArgs<float>{.rows = 2, .cols = 3});
  OnDevice<char> space(std::vector<char>(static_cast<size_t>(needed)));
  const auto error = [&](auto&& change) {
    WeightNormForwardArgs<float> args = {
        .rows = 2, .cols = 3, .v = v.data(), .g = g.data(), .w = w.data()};
    cuda::WeightNormOptions options = {.workspace = space.data(), .workspace_bytes = needed};
    change(args, options);
    return tests::ErrorOf([&] { cuda::WeightNormForward(args, options); });
  };
  EXPECT_EQ(error([](auto&, auto&) {}), "");
  EXPECT_EQ(error([](auto& a, auto&) { a.rows = -1; }),
            "[WeightNormForward] rows must be at least 0, got -1");
  EXPECT_EQ(error([](auto& a, auto&) { a.g = nullptr; }),
            "[WeightNormForward] g must point to 8 bytes, got null");
  EXPECT_EQ(error([](auto& a, auto&) { a.w = const_cast<float*>(a.v) + 2; }),
            "[WeightNormForward] w must not overlap v, got 16 bytes in common");
  EXPECT_EQ(error([](auto&, auto& o) { --o.workspace_bytes; }),
            "[WeightNormForward] workspace_bytes must be at least " + std::to_string(needed) +
                ", got " + std::to_string(needed - 1));
  EXPECT_EQ(tests::ErrorOf(
                [] { cuda::WorkspaceBytes(WeightNormForwardArgs<float>{.rows = 1, .cols = -2}); }),
            "[WorkspaceBytes] cols must be at least 0, got -2");
}

}  // namespace
}  // namespace planish
