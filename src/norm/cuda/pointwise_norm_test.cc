#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/norm/cuda/pointwise_norm_testing.h"

// The pointwise functions on a GPU against the CPU's reference. Compiled into two programs: one
// runs on the GPU and skips without one, the other runs on the emulation.
namespace planish {
namespace {

using tests::FromDouble;
using tests::IsNan;
using tests::OnDevice;
using tests::RunOnDevice;
using tests::SameBits;
using tests::ToDouble;
using tests::WithWorkspace;
using tests::pointwise::ApplyOnDevice;
using tests::pointwise::ExpectAgreesWithReference;
using tests::pointwise::kFunctions;
using tests::pointwise::Problem;
using tests::pointwise::Result;

template <class T>
class CudaPointwiseNormTest : public tests::GpuTest {};
using Types = testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(CudaPointwiseNormTest, Types);

// Few and many rows and columns: parts of one thread to several blocks.
TYPED_TEST(CudaPointwiseNormTest, AgreesWithReference) {
  for (const Pointwise f : kFunctions) {
    for (const auto& [rows, cols] : {std::pair{1, 1},
                                     {1, 7},
                                     {1, 3000},
                                     {3, 8},
                                     {7, 33},
                                     {1000, 1},
                                     {500, 7},
                                     {300, 24},
                                     {40, 129},
                                     {2, 4000}}) {
      const Problem<TypeParam> p(f, rows, cols);
      ExpectAgreesWithReference(p, ApplyOnDevice(p));
    }
  }
}

TYPED_TEST(CudaPointwiseNormTest, ParametersInFloatOrAbsent) {
  for (const Pointwise f : kFunctions) {
    if constexpr (!std::is_same_v<TypeParam, float>) {
      const Problem<TypeParam, float> p(f, 9, 100);
      ExpectAgreesWithReference(p, ApplyOnDevice(p));
    }
    Problem<TypeParam> p(f, 9, 100);
    p.shift.clear();
    p.gain.clear();
    p.bias.clear();
    ExpectAgreesWithReference(p, ApplyOnDevice(p));
  }
}

TYPED_TEST(CudaPointwiseNormTest, AnyAlphaAndSaturatedInputs) {
  for (const Pointwise f : kFunctions) {
    for (const double alpha : {0.0, -0.75, 30.0}) {
      for (const double deviation : {1e-3, 1e3}) {
        const Problem<TypeParam> p(f, 4, 40, alpha, deviation);
        ExpectAgreesWithReference(p, ApplyOnDevice(p));
      }
    }
  }
}

TYPED_TEST(CudaPointwiseNormTest, AnyLayout) {
  for (const auto& [rows, cols] : {std::pair{30, 7}, {9, 64}, {2, 2000}}) {
    const Problem<TypeParam> p(Pointwise::kTanh, rows, cols);
    EXPECT_EQ(ApplyOnDevice(p, {.in_place = true}).DiffersIn(ApplyOnDevice(p)), "");
    ExpectAgreesWithReference(p, ApplyOnDevice(p, {.offset = 1}));
    ExpectAgreesWithReference(p, ApplyOnDevice(p, {.offset = 3, .in_place = true}));
  }
}

TYPED_TEST(CudaPointwiseNormTest, NanAndInfinityStayInTheirElement) {
  for (const Pointwise f : kFunctions) {
    Problem<TypeParam> p(f, 9, 30);
    const auto expected = ApplyOnDevice(p);
    p.x[1] = FromDouble<TypeParam>(std::numeric_limits<double>::infinity());
    p.x[50] = FromDouble<TypeParam>(std::numeric_limits<double>::quiet_NaN());
    const auto out = ApplyOnDevice(p);
    EXPECT_EQ(ToDouble(out.dx[1]), 0);
    for (int64_t i = 0; i < 9 * 30; ++i) {
      if (i == 50) {
        EXPECT_TRUE(IsNan(out.y[i]) && IsNan(out.dx[i]));
      } else if (i != 1) {
        ASSERT_EQ(ToDouble(out.y[i]), ToDouble(expected.y[i])) << i;
        ASSERT_EQ(ToDouble(out.dx[i]), ToDouble(expected.dx[i])) << i;
      }
    }
  }
}

TYPED_TEST(CudaPointwiseNormTest, EveryOutputIsOptional) {
  const Problem<TypeParam> p(Pointwise::kErf, 9, 100);
  const auto expected = ApplyOnDevice(p);
  const Result<TypeParam> unset(p);
  const cuda::PointwiseNormOptions options;
  for (int subset = 0; subset < 32; ++subset) {
    Result<TypeParam> out = unset;
    auto changed = BackwardArgs(p, out);
    if (!(subset & 1)) changed.dx = nullptr;
    if (!(subset & 2)) changed.dalpha = nullptr;
    if (!(subset & 4)) changed.dshift = nullptr;
    if (!(subset & 8)) changed.dgain = nullptr;
    if (!(subset & 16)) changed.dbias = nullptr;
    RunOnDevice(changed, {}, [&](const auto& args) {
      cuda::PointwiseNormBackward(p.function, args, WithWorkspace(options, args));
    });
    EXPECT_TRUE(SameBits(out.dx, subset & 1 ? expected.dx : unset.dx)) << subset;
    EXPECT_TRUE(SameBits(out.dalpha, subset & 2 ? expected.dalpha : unset.dalpha)) << subset;
    EXPECT_TRUE(SameBits(out.dshift, subset & 4 ? expected.dshift : unset.dshift)) << subset;
    EXPECT_TRUE(SameBits(out.dgain, subset & 8 ? expected.dgain : unset.dgain)) << subset;
    EXPECT_TRUE(SameBits(out.dbias, subset & 16 ? expected.dbias : unset.dbias)) << subset;
  }
}

TYPED_TEST(CudaPointwiseNormTest, EmptyArraysAreValid) {
  const auto out = ApplyOnDevice(Problem<TypeParam>(Pointwise::kErf, 0, 5));
  for (int c = 0; c < 5; ++c) EXPECT_EQ(ToDouble(out.dgain[c]), 0);
  EXPECT_EQ(ToDouble(out.dalpha[0]), 0);
  ApplyOnDevice(Problem<TypeParam>(Pointwise::kTanh, 3, 0));
}

class CudaPointwiseNormErrorTest : public tests::GpuTest {};

// Errors are those of the CPU, and those of the workspace.
TEST_F(CudaPointwiseNormErrorTest, Texts) {
  OnDevice<float> x(std::vector<float>(6)), y(std::vector<float>(6)), alpha(std::vector<float>(1));
  const int64_t needed =
      cuda::WorkspaceBytes(PointwiseNormForwardArgs<float>{.rows = 2, .cols = 3});
  OnDevice<char> space(std::vector<char>(static_cast<size_t>(needed)));
  const auto error = [&](auto&& change, Pointwise f = Pointwise::kTanh) {
    PointwiseNormForwardArgs<float> args = {
        .rows = 2, .cols = 3, .x = x.data(), .alpha = alpha.data(), .y = y.data()};
    cuda::PointwiseNormOptions options = {.workspace = space.data(), .workspace_bytes = needed};
    change(args, options);
    return tests::ErrorOf([&] { cuda::PointwiseNormForward(f, args, options); });
  };
  EXPECT_EQ(error([](auto&, auto&) {}), "");
  EXPECT_EQ(error([](auto&, auto&) {}, static_cast<Pointwise>(9)),
            "[PointwiseNormForward] function must be a value of planish::Pointwise, got 9");
  EXPECT_EQ(error([](auto& a, auto&) { a.alpha = nullptr; }),
            "[PointwiseNormForward] alpha must point to 4 bytes, got null");
  EXPECT_EQ(error([](auto&, auto& o) { --o.workspace_bytes; }),
            "[PointwiseNormForward] workspace_bytes must be at least " + std::to_string(needed) +
                ", got " + std::to_string(needed - 1));
}

}  // namespace
}  // namespace planish
