#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/norm/cuda/group_norm_testing.h"

// Group norm on a GPU against the CPU's reference. Compiled into two programs: one runs on the GPU
// and skips without one, the other runs on the emulation.
namespace planish {
namespace {

using tests::FromDouble;
using tests::IsNan;
using tests::OnDevice;
using tests::Shape;
using tests::ToDouble;
using tests::WithWorkspace;
using tests::group_norm::ApplyOnDevice;
using tests::group_norm::ExpectAgreesWithReference;
using tests::group_norm::Problem;
using tests::group_norm::Result;

template <class T>
class CudaGroupNormTest : public tests::GpuTest {};
using Types = testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(CudaGroupNormTest, Types);

// Groups of one and of several channels; runs of one thread, a team, a block and several blocks.
TYPED_TEST(CudaGroupNormTest, AgreesWithReference) {
  for (const auto& [shape, groups] : {std::pair<Shape, int64_t>{{1, 1, 2}, 1},
                                      {{2, 4, 1}, 2},
                                      {{3, 6, 1}, 1},
                                      {{2, 6, 5}, 3},
                                      {{3, 4, 8}, 4},
                                      {{2, 12, 49}, 3},
                                      {{2, 10, 64}, 2},
                                      {{1, 40, 256}, 8},
                                      {{9, 64, 1}, 8},
                                      {{2, 3, 4097}, 3},
                                      {{1, 2, 9000}, 1},
                                      {{1, 300, 3}, 1}}) {
    const Problem<TypeParam> p(shape, groups, /*affine=*/shape.channels % 3 != 0);
    ExpectAgreesWithReference(p, ApplyOnDevice(p));
  }
}

TYPED_TEST(CudaGroupNormTest, ParametersInFloat) {
  if constexpr (!std::is_same_v<TypeParam, float>) {
    const Problem<TypeParam, float> p({3, 6, 50}, 3);
    ExpectAgreesWithReference(p, ApplyOnDevice(p));
  }
}

TYPED_TEST(CudaGroupNormTest, ExactAtALargeMean) {
  if constexpr (sizeof(TypeParam) > 2) {
    for (const double mean : {1e4, -3e6}) {
      const Problem<TypeParam> p({2, 6, 100}, 2, true, mean);
      ExpectAgreesWithReference(p, ApplyOnDevice(p));
    }
  }
}

TYPED_TEST(CudaGroupNormTest, AnyLayout) {
  for (const auto& [shape, groups] : {std::pair<Shape, int64_t>{{2, 6, 5}, 3}, {{2, 8, 64}, 2}}) {
    const Problem<TypeParam> p(shape, groups);
    EXPECT_EQ(ApplyOnDevice(p, {.in_place = true}).DiffersIn(ApplyOnDevice(p)), "");
    ExpectAgreesWithReference(p, ApplyOnDevice(p, {.offset = 1}));
    ExpectAgreesWithReference(p, ApplyOnDevice(p, {.offset = 3, .in_place = true}));
  }
}

TYPED_TEST(CudaGroupNormTest, NanStaysInItsGroup) {
  Problem<TypeParam> p({3, 8, 5}, 4);
  const auto expected = ApplyOnDevice(p);
  p.x[p.At(1, 2, 3)] = FromDouble<TypeParam>(std::numeric_limits<double>::quiet_NaN());
  const auto out = ApplyOnDevice(p);
  for (int64_t b = 0; b < 3; ++b) {
    for (int64_t g = 0; g < 4; ++g) {
      for (int64_t i = 0; i < p.length(); ++i) {
        const int64_t at = p.At(b, g, i);
        if (b == 1 && g == 2) {
          ASSERT_TRUE(IsNan(out.y[at]) && IsNan(out.dx[at]));
        } else {
          ASSERT_EQ(ToDouble(out.y[at]), ToDouble(expected.y[at]));
          ASSERT_EQ(ToDouble(out.dx[at]), ToDouble(expected.dx[at]));
        }
      }
    }
  }
}

TYPED_TEST(CudaGroupNormTest, EveryGradientIsOptional) {
  const Problem<TypeParam> p({3, 8, 20}, 4);
  const cuda::GroupNormOptions options = {.eps = p.options.eps};
  tests::ExpectEachSubsetOfGradients(p, ApplyOnDevice(p), [&](const auto& args) {
    cuda::GroupNormBackward(args, WithWorkspace(options, args));
  });
}

TYPED_TEST(CudaGroupNormTest, EmptyArraysAreValid) {
  for (const Shape& shape : {Shape{0, 6, 5}, Shape{2, 0, 5}, Shape{2, 6, 0}}) {
    const auto out = ApplyOnDevice(Problem<TypeParam>(shape, 3));
    for (const auto& rstd : out.rstd) EXPECT_TRUE(std::isnan(rstd));
    for (const auto& dgain : out.dgain) EXPECT_EQ(ToDouble(dgain), 0);
  }
}

class CudaGroupNormErrorTest : public tests::GpuTest {};

// Errors are those of the CPU, and those of the workspace.
TEST_F(CudaGroupNormErrorTest, Texts) {
  OnDevice<float> x(std::vector<float>(30)), y(std::vector<float>(30));
  const GroupNormForwardArgs<float> sizes = {
      .batch = 1, .groups = 3, .channels = 6, .spatial = 5, .x = x.data(), .y = y.data()};
  const int64_t needed = cuda::WorkspaceBytes(sizes);
  OnDevice<char> space(std::vector<char>(static_cast<size_t>(needed)));
  const auto error = [&](auto&& change) {
    GroupNormForwardArgs<float> args = sizes;
    cuda::GroupNormOptions options = {.workspace = space.data(), .workspace_bytes = needed};
    change(args, options);
    return tests::ErrorOf([&] { cuda::GroupNormForward(args, options); });
  };
  EXPECT_EQ(error([](auto&, auto&) {}), "");
  EXPECT_EQ(error([](auto& a, auto&) { a.groups = 4; }),
            "[GroupNormForward] groups must divide channels (6), got 4");
  EXPECT_EQ(error([](auto&, auto& o) { --o.workspace_bytes; }),
            "[GroupNormForward] workspace_bytes must be at least " + std::to_string(needed) +
                ", got " + std::to_string(needed - 1));
}

}  // namespace
}  // namespace planish
