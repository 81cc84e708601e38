#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/norm/bounds.h"
#include "src/norm/cuda/norm_testing.h"
#include "src/norm/gate_testing.h"
#include "src/norm/quantize_testing.h"
#include "src/norm/rows/quantize.h"
#include "src/norm/sets_testing.h"

// Norms on a GPU against the reference, with the bounds of the CPU's kernels (docs/accuracy.md).
// Compiled into two programs: one runs on the GPU and skips without one, the other runs on the
// emulation.
namespace planish {
namespace {

using ::testing::HasSubstr;
using tests::ApplyOnDevice;
using tests::Layout;
using tests::OnDevice;
using tests::Problem;
using tests::WithWorkspace;

template <class T, class P>
struct Types {
  using Element = T;
  using Parameter = P;
};

// Row lengths for a type. Only short rows if the parameters have another type, because loads are
// the same.
template <class T, class P>
std::vector<int64_t> Lengths(std::vector<int64_t> lengths) {
  if (!std::is_same_v<T, P>) std::erase_if(lengths, [](int64_t cols) { return cols > 5000; });
  return lengths;
}

// Row lengths, each with the cluster sizes to test.
template <class T, class P>
std::vector<std::pair<int64_t, int>> LengthsAndClusters(const std::vector<int64_t>& lengths) {
  std::vector<std::pair<int64_t, int>> all;
  for (const int64_t cols : Lengths<T, P>(lengths)) {
    for (const int clusters : tests::ClustersFor(cols)) all.emplace_back(cols, clusters);
  }
  return all;
}

template <class Pair>
class CudaTest : public tests::GpuTest {
 protected:
  using Element = typename Pair::Element;
  using Parameter = typename Pair::Parameter;

  static void ExpectWithinBounds(const Problem<Element, Parameter>& p, const Layout& layout = {}) {
    const tests::Oracle<Element, Parameter> oracle(p, std::is_same_v<Element, double> ? 2 : 1);
    for (const int clusters : tests::ClustersFor(p.cols)) {
      const tests::ClustersUpTo limit(clusters);
      EXPECT_EQ(tests::Beyond(oracle.Compare(ApplyOnDevice(p, layout))), "")
          << tests::NameOf(p.norm) << ", " << p.rows << " x " << p.cols << ", offset "
          << layout.offset << ", padding " << layout.padding << ", clusters of " << clusters;
    }
  }
};

using AllTypes = ::testing::Types<Types<float, float>, Types<double, double>, Types<double, float>,
                                  Types<bfloat16, bfloat16>, Types<bfloat16, float>,
                                  Types<float16, float16>, Types<float16, float>>;
TYPED_TEST_SUITE(CudaTest, AllTypes);

// Row lengths: less than a warp, a warp, several warps, the limit of a block in each direction, and
// more. Rows beyond the limit are held by clusters or read in several passes (tests::ClustersFor).
TYPED_TEST(CudaTest, EveryNormAgreesWithTheReference) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const Norm norm : tests::kNorms) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{21, 1},
                                     {300, 3},
                                     {21, 8},
                                     {21, 17},
                                     {9, 64},
                                     {9, 100},
                                     {3, 256},
                                     {3, 769},
                                     {2, 1024},
                                     {1, 8192},
                                     {1, 9001}}) {
      if (cols == 1 && norm == Norm::kAdaAsCoded) continue;  // has no unbiased deviation
      this->ExpectWithinBounds(Problem<T, P>(norm, rows, cols));
    }
  }
}

TYPED_TEST(CudaTest, SetsAreSeparateCalls) {
  tests::ExpectSetsAreSeparateCalls<typename TypeParam::Element, typename TypeParam::Parameter>(
      [](const auto& p) { return ApplyOnDevice(p, {.padding = 3}); });
}

TYPED_TEST(CudaTest, EveryWidthAgreesWithTheReference) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (int64_t cols = 1; cols <= 67; ++cols) {
    this->ExpectWithinBounds(Problem<T, P>(Norm::kLayer, 35, cols));
  }
  for (const int64_t cols :
       {127,  128,  129,  255,  257,  511,  512,  513,   520,   1000,  1001,
        1025, 2048, 4095, 4096, 4097, 8191, 8200, 16384, 16385, 16400, 40000}) {
    this->ExpectWithinBounds(Problem<T, P>(Norm::kLayer, 1, cols));
    this->ExpectWithinBounds(Problem<T, P>(Norm::kRms, 1, cols));
  }
}

// The longest rows that clusters hold: by single elements and in packs, backward and forward.
TYPED_TEST(CudaTest, LongestRowsOfClustersAgreeWithTheReference) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  constexpr int64_t kMax = sizeof(T) == 8 ? 65536 : 131072;
  for (const int64_t cols : Lengths<T, P>({kMax / 4 - 1, kMax / 2 - 1, kMax / 2, kMax})) {
    const Problem<T, P> p(Norm::kLayer, 1, cols);
    const tests::Oracle<T, P> oracle(p, std::is_same_v<T, double> ? 2 : 1);
    EXPECT_EQ(tests::Beyond(oracle.Compare(ApplyOnDevice(p))), "") << cols;
  }
}

// Clusters of fewer than 8 blocks, as in a partition of a device, and their workspace.
TYPED_TEST(CudaTest, SmallerClustersAgreeWithTheReference) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const int64_t cols : Lengths<T, P>({9000, 16392})) {
    const Problem<T, P> p(Norm::kLayer, 2, cols);
    const tests::Oracle<T, P> oracle(p, std::is_same_v<T, double> ? 2 : 1);
    for (const int blocks : {2, 4}) {
      const tests::ClustersUpTo limit(blocks);
      EXPECT_EQ(tests::Beyond(oracle.Compare(ApplyOnDevice(p))), "") << cols << ' ' << blocks;
    }
  }
}

// dgain and dbias over several blocks, many rows a thread, clusters with several rows each, and
// multi-pass plans.
TYPED_TEST(CudaTest, ManyRowsAgreeWithTheReference) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{3000, 5}, {530, 40}, {600, 130}, {300, 1126}}) {
    this->ExpectWithinBounds(Problem<T, P>(Norm::kLayer, rows, cols));
  }
  if (std::is_same_v<T, P>) this->ExpectWithinBounds(Problem<T, P>(Norm::kLayer, 260, 8193));
}

TYPED_TEST(CudaTest, AnyLayout) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const Norm norm : {Norm::kLayer, Norm::kDetach}) {
    for (const int64_t cols : Lengths<T, P>({24, 64, 1024, 16392})) {
      const Problem<T, P> p(norm, cols < 1000 ? 20 : 2, cols);
      this->ExpectWithinBounds(p, {.offset = 1});
      this->ExpectWithinBounds(p, {.padding = 3});
      this->ExpectWithinBounds(p, {.padding = 8});
      this->ExpectWithinBounds(p, {.in_place = true});
      this->ExpectWithinBounds(p, {.offset = 3, .padding = 1, .in_place = true});
    }
  }
}

// The assignment of columns to threads depends only on the shape, so bits are the same at any
// alignment.
TYPED_TEST(CudaTest, AlignmentChangesNoBit) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const Norm norm : {Norm::kLayer, Norm::kRms, Norm::kAda}) {
    for (const int64_t cols : {8, 24, 264, 776, 1024, 2056}) {
      const Problem<T, P> p(norm, cols < 300 ? 40 : 5, cols);
      const auto aligned = ApplyOnDevice(p);
      for (const Layout& layout : {Layout{.offset = 1}, Layout{.offset = 3, .padding = 5},
                                   Layout{.padding = 1, .in_place = true}}) {
        EXPECT_EQ(aligned.DiffersIn(ApplyOnDevice(p, layout)), "")
            << tests::NameOf(norm) << ' ' << cols << ", offset " << layout.offset << ", padding "
            << layout.padding;
      }
    }
  }
}

// Memory before, between and after rows is not written.
TYPED_TEST(CudaTest, WritesOnlyTheRows) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const int64_t cols : {1, 9, 31, 48, 255, 769, 1100}) {
    const int64_t rows = 5, stride = cols + 9, before = 11;
    const Problem<T, P> p(Norm::kLayer, rows, cols);
    OnDevice<T> x(p.x);
    const auto size = static_cast<size_t>(before + rows * stride);
    const std::vector<T> marks(size, tests::FromDouble<T>(77));
    OnDevice<T> y(marks);
    cuda::NormForward<T, P>(
        p.norm,
        {.rows = rows, .cols = cols, .x = x.data(), .y = y.data() + before, .y_stride = stride});
    const std::vector<T> after = y.Get();
    for (size_t i = 0; i < size; ++i) {
      const auto at = static_cast<int64_t>(i) - before;
      const bool inside = at >= 0 && at % stride < cols;
      EXPECT_EQ(tests::ToDouble(after[i]) == 77, !inside) << cols << ' ' << at;
    }
  }
}

// A mean a thousand to a million deviations away, as accurate as at 0.
TYPED_TEST(CudaTest, ExactAtAnyMean) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const Norm norm : {Norm::kLayer, Norm::kDetachMean, Norm::kAda}) {
    for (const double mean : {1e3, -3e4, 1e6}) {
      if (std::is_same_v<T, float16> && std::abs(mean) > 6e4) continue;  // infinite
      if (sizeof(T) == 2 && std::abs(mean) > 1e5) continue;  // a row of one or two distinct values
      for (const int64_t cols : Lengths<T, P>({7, 33, 256, 1000, 4096, 20000})) {
        this->ExpectWithinBounds(Problem<T, P>(norm, cols < 300 ? 8 : 1, cols, mean,
                                               sizeof(T) == 2 ? std::abs(mean) / 10 : 1));
      }
    }
  }
}

// `sum` is x + residual, rounded; y is the norm of `sum`.
/// Runs forward, then backward, of a gated norm on the device.
template <class T, class P>
tests::GatedResult<T, P> ApplyGatedOnDevice(const tests::GatedProblem<T, P>& p,
                                            const tests::Layout& layout = {}) {
  tests::GatedResult<T, P> out(p);
  const internal::Recipe recipe = internal::RecipeOf(p.norm);
  const cuda::NormOptions options = {.eps = p.eps};
  tests::RunOnDevice(
      tests::GatedForward(p, out), layout,
      [&](const auto& args) {
        cuda::NormForward(p.norm, args, tests::WithWorkspace(options, args));
      },
      recipe);
  tests::RunOnDevice(
      tests::GatedBackward(p, out), layout,
      [&](const auto& args) {
        cuda::NormBackward(p.norm, args, tests::WithWorkspace(options, args));
      },
      recipe);
  return out;
}

TYPED_TEST(CudaTest, GatedNormsAgreeWithTheReference) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const Norm norm : tests::kAffineNorms) {
    for (const bool before : {false, true}) {
      for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
               {3, 2}, {5, 33}, {21, 64}, {300, 70}, {2, 9001}}) {
        tests::GatedProblem<T, P> p(norm, rows, cols, before);
        const auto out = ApplyGatedOnDevice(p);
        tests::ExpectAgreesWithReference(p, out);
        for (const tests::Layout& layout :
             {tests::Layout{.offset = 1, .padding = 3}, tests::Layout{.in_place = true}}) {
          tests::ExpectAgreesWithReference(p, ApplyGatedOnDevice(p, layout));
        }
        // The rounding before the gain: as on the CPU, except where statistics differ in a bit.
        p.cast = true;
        const auto cast = ApplyGatedOnDevice(p), expected = tests::ApplyGated(p);
        for (size_t i = 0; i < cast.y.size(); ++i) {
          const double y = tests::ToDouble(expected.y[i]);
          ASSERT_NEAR(tests::ToDouble(cast.y[i]), y,
                      8 * tests::UnitRoundoff<T>() * (std::abs(y) + 4));
        }
        p.gain.clear(), p.bias.clear(), p.cast = false;
        tests::ExpectAgreesWithReference(p, ApplyGatedOnDevice(p));
      }
    }
  }
}

/// Runs a norm whose output is quantized on the device.
template <class T, class P>
tests::QuantizedResult<T, P> ApplyQuantizedOnDevice(const tests::GatedProblem<T, P>& p,
                                                    const tests::Layout& layout = {}) {
  tests::QuantizedResult<T, P> out(p);
  const cuda::NormOptions options = {.eps = p.eps, .scale = p.scale, .slope = p.slope};
  tests::RunOnDevice(
      tests::QuantizedForward(p, out), layout,
      [&](const auto& args) {
        cuda::NormForward(p.norm, args, tests::WithWorkspace(options, args));
      },
      internal::RecipeOf(p.norm));
  return out;
}

TYPED_TEST(CudaTest, QuantizedNormsAgreeWithTheReference) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const Norm norm : tests::kNorms) {
    for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
             {3, 2}, {5, 33}, {21, 64}, {300, 70}, {2, 9001}}) {
      tests::GatedProblem<T, P> p(norm, rows, cols, false);
      auto plain = p;
      plain.z.clear();
      tests::ExpectQuantizes(plain, ApplyQuantizedOnDevice(plain));
      tests::ExpectQuantizes(plain, ApplyQuantizedOnDevice(plain, {.offset = 1, .padding = 3}));
      if (!tests::IsAffine(norm)) continue;
      tests::ExpectQuantizes(p, ApplyQuantizedOnDevice(p));
      p.before = true;
      tests::ExpectQuantizes(p, ApplyQuantizedOnDevice(p));
    }
  }
}

// The quantization of y has the bits of its definition, for y of a call in Compute<T>.
TYPED_TEST(CudaTest, QuantizationHasTheBitsOfTheDefinition) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  if constexpr (std::is_same_v<T, Compute<T>>) {
    for (const int64_t cols : {33, 70, 1500}) {
      const tests::GatedProblem<T, P> p(Norm::kLayer, 5, cols, false);
      const auto y = ApplyGatedOnDevice(p).y;
      tests::QuantizedResult<T, P> out(p);
      auto args = tests::QuantizedForward(p, out);
      args.y = out.y.data();
      tests::RunOnDevice(
          args, {},
          [&](const auto& to) {
            cuda::NormForward(p.norm, to,
                              tests::WithWorkspace(cuda::NormOptions{.eps = p.eps}, to));
          },
          internal::RecipeOf(p.norm));
      EXPECT_TRUE(tests::SameBits(out.y, y));
      for (int64_t r = 0; r < 5; ++r) {
        const T* const row = y.data() + r * cols;
        const auto scale = internal::RowScaleOf(internal::MaxAbs(row, cols));
        EXPECT_EQ(out.row_scale[static_cast<size_t>(r)], scale.scale);
        std::vector<int8_t> expected(static_cast<size_t>(cols));
        internal::Quantize(row, cols, scale.factor, expected.data());
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.quantized.begin() + r * cols));
      }
    }
  }
}

TYPED_TEST(CudaTest, QuantizesSpecialRows) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const int64_t cols : {5, 40, 3000}) {
    tests::GatedProblem<T, P> p(Norm::kLayer, 4, cols, false);
    p.z.clear(), p.bias.clear();
    p.x[static_cast<size_t>(cols - 1)] = tests::FromDouble<T>(NAN);
    p.x[static_cast<size_t>(cols)] = tests::FromDouble<T>(-INFINITY);
    std::fill_n(p.x.begin() + 2 * cols, cols, tests::FromDouble<T>(3));
    const auto out = ApplyQuantizedOnDevice(p), expected = tests::ApplyQuantized(p);
    EXPECT_TRUE(std::isnan(out.row_scale[0]) && std::isnan(out.row_scale[1]));
    EXPECT_EQ(out.row_scale[2], 0);
    EXPECT_GT(out.row_scale[3], 0);
    EXPECT_TRUE(std::equal(out.quantized.begin(), out.quantized.begin() + 3 * cols,
                           expected.quantized.begin()));
  }
}

// The rounding before the gain, a residual and sets.
TYPED_TEST(CudaTest, QuantizesWithOtherOptions) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  using C = Compute<T>;
  const int64_t cols = 33, sets = 3;
  tests::GatedProblem<T, P> p(Norm::kRms, 4 * sets, cols, false);
  p.SetSets(sets, 1);
  p.cast = true;
  tests::QuantizedResult<T, P> out(p), expected(p);
  const cuda::NormOptions options = {.eps = p.eps};
  auto args = tests::QuantizedForward(p, out);
  args.residual = p.dy.data();
  args.sum = out.dx.data();
  tests::RunOnDevice(
      args, {},
      [&](const auto& to) { cuda::NormForward(p.norm, to, tests::WithWorkspace(options, to)); },
      internal::RecipeOf(p.norm));
  args.quantized = expected.quantized.data();
  args.row_scale = expected.row_scale.data();
  args.sum = expected.dx.data();
  args.mean = args.mean_lo = args.rstd = nullptr;
  NormForward<T, P>(p.norm, args, {.eps = p.eps});
  EXPECT_TRUE(tests::SameBits(out.dx, expected.dx));
  for (size_t r = 0; r < out.row_scale.size(); ++r) {
    // Statistics can differ from the CPU's in a bit: xhat then in one of T, y in two.
    const double u = 4 * (sizeof(T) == 2 ? tests::UnitRoundoff<T>() : 8 * tests::UnitRoundoff<C>());
    const auto scale = static_cast<double>(expected.row_scale[r]);
    EXPECT_NEAR(static_cast<double>(out.row_scale[r]), scale, u * scale);
    for (size_t c = 0; c < static_cast<size_t>(cols); ++c) {
      const size_t i = r * static_cast<size_t>(cols) + c;
      EXPECT_NEAR(out.quantized[i], expected.quantized[i], 1 + 127 * u);
    }
  }
}

TYPED_TEST(CudaTest, GatedSetsAreSeparateCalls) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  const int64_t cols = 33, sets = 3, n = 4;
  for (const bool before : {false, true}) {
    tests::GatedProblem<T, P> p(Norm::kRms, sets * n, cols, before);
    p.SetSets(sets, n);
    const auto out = ApplyGatedOnDevice(p);
    const auto part = [](const auto& from, int64_t first, int64_t size) {
      return std::decay_t<decltype(from)>(from.begin() + first, from.begin() + first + size);
    };
    for (int64_t set = 0; set < sets; ++set) {
      tests::GatedProblem<T, P> one(Norm::kRms, n, cols, before);
      const int64_t first = set * n * cols, size = n * cols;
      one.x = part(p.x, first, size), one.z = part(p.z, first, size);
      one.dy = part(p.dy, first, size);
      one.gain = part(p.gain, set * cols, cols), one.bias = part(p.bias, set * cols, cols);
      const auto expected = ApplyGatedOnDevice(one);
      EXPECT_TRUE(tests::SameBits(part(out.y, first, size), expected.y));
      EXPECT_TRUE(tests::SameBits(part(out.dx, first, size), expected.dx));
      EXPECT_TRUE(tests::SameBits(part(out.dz, first, size), expected.dz));
      EXPECT_TRUE(tests::SameBits(part(out.dgain, set * cols, cols), expected.dgain));
    }
  }
}

TYPED_TEST(CudaTest, GatedNormsAddAResidual) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const bool before : {false, true}) {
    tests::GatedProblem<T, P> p(Norm::kLayer, 5, 33, before);
    tests::GatedResult<T, P> out(p);
    const internal::Recipe recipe = internal::RecipeOf(p.norm);
    const cuda::NormOptions options = {.eps = p.eps};
    auto args = tests::GatedForward(p, out);
    args.residual = p.dy.data();
    args.sum = out.dx.data();
    tests::RunOnDevice(
        args, {},
        [&](const auto& to) { cuda::NormForward(p.norm, to, tests::WithWorkspace(options, to)); },
        recipe);
    const std::vector<T> residual = p.dy;
    p.x = out.dx;
    const auto expected = ApplyGatedOnDevice(p);
    EXPECT_TRUE(tests::SameBits(out.y, expected.y));
    auto backward = tests::GatedBackward(p, out);
    backward.dsum = residual.data();
    tests::RunOnDevice(
        backward, {},
        [&](const auto& to) { cuda::NormBackward(p.norm, to, tests::WithWorkspace(options, to)); },
        recipe);
    for (size_t i = 0; i < out.dx.size(); ++i) {
      const double a = tests::ToDouble(expected.dx[i]), b = tests::ToDouble(residual[i]);
      // dx is rounded before and after the sum in one of the two.
      ASSERT_NEAR(tests::ToDouble(out.dx[i]), a + b,
                  2.01 * tests::UnitRoundoff<T>() * (std::abs(a) + std::abs(b)));
    }
  }
}

TYPED_TEST(CudaTest, AddsAResidual) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  using C = Compute<T>;
  for (const auto& [cols, clusters] : LengthsAndClusters<T, P>({5, 64, 1024, 20000})) {
    const tests::ClustersUpTo limit(clusters);
    const int64_t rows = cols < 100 ? 9 : 2;
    const Problem<T, P> p(Norm::kLayer, rows, cols);
    const Problem<T, P> other(Norm::kLayer, rows, cols, 0, 2, 5);
    const std::vector<T>& residual = other.x;
    Problem<T, P> summed = p;
    for (size_t i = 0; i < p.x.size(); ++i) {
      summed.x[i] = tests::FromDouble<T>(static_cast<double>(
          static_cast<C>(tests::ToDouble(p.x[i])) + static_cast<C>(tests::ToDouble(residual[i]))));
    }
    const auto expected = ApplyOnDevice(summed);
    for (const bool in_place : {false, true}) {
      OnDevice<T> x(p.x), more(residual), y(p.x), sum(p.x);
      OnDevice<P> gain(p.gain), bias(p.bias);
      const NormForwardArgs<T, P> args = {.rows = rows,
                                          .cols = cols,
                                          .x = x.data(),
                                          .gain = gain.data(),
                                          .bias = bias.data(),
                                          .y = y.data(),
                                          .residual = more.data(),
                                          .sum = in_place ? x.data() : sum.data()};
      cuda::NormForward(Norm::kLayer, args, WithWorkspace(cuda::NormOptions(), args));
      EXPECT_TRUE(tests::SameBits(y.Get(), expected.y)) << cols;
      EXPECT_TRUE(tests::SameBits((in_place ? x : sum).Get(), summed.x)) << cols;
    }
  }
}

// dx with dsum is dx + dsum, rounded once.
TYPED_TEST(CudaTest, AddsTheGradientOfTheSum) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const auto& [cols, clusters] : LengthsAndClusters<T, P>({5, 64, 1024, 20000})) {
    const tests::ClustersUpTo limit(clusters);
    const int64_t rows = cols < 100 ? 9 : 2;
    const Problem<T, P> p(Norm::kLayerSimple, rows, cols);
    const std::vector<T> dsum = Problem<T, P>(Norm::kLayerSimple, rows, cols, 0, 3, 5).x;
    const auto without = ApplyOnDevice(p);
    OnDevice<T> x(p.x), dy(p.dy), more(dsum), dx(p.x);
    OnDevice<Compute<T>> mean(without.mean), mean_lo(without.mean_lo), rstd(without.rstd);
    const NormBackwardArgs<T, P> args = {.rows = rows,
                                         .cols = cols,
                                         .dy = dy.data(),
                                         .x = x.data(),
                                         .mean = mean.data(),
                                         .mean_lo = mean_lo.data(),
                                         .rstd = rstd.data(),
                                         .dx = dx.data(),
                                         .dsum = more.data()};
    cuda::NormBackward(p.norm, args, WithWorkspace(cuda::NormOptions(), args));
    const std::vector<T> with = dx.Get();
    for (size_t i = 0; i < with.size(); ++i) {
      const double a = tests::ToDouble(without.dx[i]), b = tests::ToDouble(dsum[i]);
      // Rounding of a (only here), and of the sum.
      EXPECT_NEAR(tests::ToDouble(with[i]), a + b,
                  tests::UnitRoundoff<T>() * (std::abs(a) + std::abs(a + b)) * 1.01 +
                      2 * tests::HalfOfLeast<T>())
          << cols;
    }
  }
}

TYPED_TEST(CudaTest, EachSubsetOfGradientsHasTheSameBits) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const auto& [cols, clusters] : LengthsAndClusters<T, P>({6, 64, 1024, 9000})) {
    SCOPED_TRACE(cols);
    const tests::ClustersUpTo limit(clusters);
    const Problem<T, P> p(Norm::kLayer, cols < 100 ? 300 : 3, cols);
    tests::ExpectEachSubsetOfGradients(
        p, ApplyOnDevice(p),
        [&](const auto& args) {
          cuda::NormBackward(p.norm, args, WithWorkspace(cuda::NormOptions(), args));
        },
        internal::RecipeOf(p.norm));
  }
}

// A row with a NaN or an infinity is NaN and does not affect other rows.
TYPED_TEST(CudaTest, NansStayInTheirRow) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const Norm norm : {Norm::kLayer, Norm::kRms, Norm::kDetach}) {
    for (const auto& [cols, clusters] : LengthsAndClusters<T, P>({5, 64, 600, 20000})) {
      const tests::ClustersUpTo limit(clusters);
      const int64_t rows = 7;
      Problem<T, P> p(norm, rows, cols);
      const auto clean = ApplyOnDevice(p);
      const double inf = std::numeric_limits<double>::infinity();
      p.x[static_cast<size_t>(2 * cols + cols / 2)] = tests::FromDouble<T>(NAN);
      p.x[static_cast<size_t>(4 * cols)] = tests::FromDouble<T>(inf);
      p.x[static_cast<size_t>(6 * cols - 1)] = tests::FromDouble<T>(-inf);
      const auto out = ApplyOnDevice(p);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c) {
          const auto i = static_cast<size_t>(r * cols + c);
          if (r == 2 || r == 4 || r == 5) {
            ASSERT_TRUE(tests::IsNan(out.y[i]))
                << tests::NameOf(norm) << r << ' ' << c << ' ' << cols;
          } else {
            ASSERT_EQ(tests::ToDouble(out.y[i]), tests::ToDouble(clean.y[i])) << r << ' ' << cols;
          }
        }
      }
    }
  }
}

// Without eps, rows multiplied by 2^-100 and 2^100 have the y of the original rows, up to a few
// roundings.
TYPED_TEST(CudaTest, ScalingARowByAPowerOfTwoKeepsItsOutput) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  if (std::is_same_v<T, float16>) return;  // has no such range
  for (const Norm norm : {Norm::kLayer, Norm::kRms, Norm::kAdaAsCoded}) {
    for (const auto& [cols, clusters] : LengthsAndClusters<T, P>({5, 64, 600, 20000})) {
      const tests::ClustersUpTo limit(clusters);
      Problem<T, P> p(norm, cols < 5000 ? 3 : 1, cols);
      p.eps = 0;
      for (const int exponent : {-100, 100}) {
        Problem<T, P> scaled = p;
        for (T& value : scaled.x) {
          value = tests::FromDouble<T>(std::ldexp(tests::ToDouble(value), exponent));
        }
        const auto near = ApplyOnDevice(p), far = ApplyOnDevice(scaled);
        for (size_t i = 0; i < near.y.size(); ++i) {
          const double y = tests::ToDouble(near.y[i]);
          ASSERT_NEAR(tests::ToDouble(far.y[i]), y,
                      (2 * tests::UnitRoundoff<T>() + 8 * tests::UnitRoundoff<Compute<T>>()) *
                          (1 + std::abs(y) * 4))
              << tests::NameOf(norm) << ' ' << cols << ' ' << exponent;
        }
      }
    }
  }
}

// Rows contain two neighboring values, multiplied by a power of two. Their mean is between them.
// With equal numbers of both, y is -1 and 1.
TYPED_TEST(CudaTest, NeighboringValuesAreNormalized) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const auto& [cols, clusters] : LengthsAndClusters<T, P>({6, 65, 600, 1024, 20000})) {
    const tests::ClustersUpTo limit(clusters);
    for (const int exponent : {0, -100, 100}) {
      if (std::is_same_v<T, float16> && exponent != 0) continue;  // has no such values
      Problem<T, P> p(Norm::kLayerSimple, 2, cols);
      p.eps = 0;
      const double step = 2 * tests::UnitRoundoff<T>();
      for (size_t i = 0; i < p.x.size(); ++i) {
        const bool upper = i % static_cast<size_t>(cols) % 2 == 1;
        p.x[i] = tests::FromDouble<T>(std::ldexp(upper ? 1 + step : 1, exponent));
      }
      // The upper value occurs n / 2 times, rounded down.
      const double n = static_cast<double>(cols), upper = std::floor(n / 2) / n;
      const double deviation = std::sqrt(upper * (1 - upper));
      const auto out = ApplyOnDevice(p);
      for (size_t i = 0; i < out.y.size(); ++i) {
        const double d = i % static_cast<size_t>(cols) % 2 == 1 ? 1 - upper : -upper;
        ASSERT_NEAR(tests::ToDouble(out.y[i]), d / deviation,
                    tests::UnitRoundoff<T>() * 1.1 + 8 * tests::UnitRoundoff<Compute<T>>())
            << cols << ' ' << exponent << ' ' << i;
      }
    }
  }
}

// A constant row gives its bias, and NaN without eps (0 / 0).
TYPED_TEST(CudaTest, ConstantRows) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  for (const auto& [cols, clusters] : LengthsAndClusters<T, P>({3, 64, 600, 20000})) {
    const tests::ClustersUpTo limit(clusters);
    Problem<T, P> p(Norm::kLayer, 2, cols);
    std::fill(p.x.begin(), p.x.end(), tests::FromDouble<T>(1234.5));
    const auto out = ApplyOnDevice(p);
    for (size_t i = 0; i < out.y.size(); ++i) {
      ASSERT_EQ(tests::ToDouble(out.y[i]), tests::ToDouble(tests::FromDouble<T>(tests::ToDouble(
                                               p.bias[i % static_cast<size_t>(cols)]))));
    }
    p.eps = 0;
    for (const T& y : ApplyOnDevice(p).y) ASSERT_TRUE(tests::IsNan(y));
  }
}

TYPED_TEST(CudaTest, NoRowsAndNoColumns) {
  using T = typename TypeParam::Element;
  using P = typename TypeParam::Parameter;
  using C = Compute<T>;
  OnDevice<P> dgain(std::vector<P>(3, tests::Unset<P>())),
      dbias(std::vector<P>(3, tests::Unset<P>()));
  cuda::NormForward<T, P>(Norm::kLayer, {.rows = 0, .cols = 3});
  cuda::NormBackward<T, P>(Norm::kLayer,
                           {.rows = 0, .cols = 3, .dgain = dgain.data(), .dbias = dbias.data()});
  for (const P& value : dgain.Get()) EXPECT_EQ(tests::ToDouble(value), 0);
  for (const P& value : dbias.Get()) EXPECT_EQ(tests::ToDouble(value), 0);
  OnDevice<C> mean(std::vector<C>(4, 1)), rstd(std::vector<C>(4, 1));
  cuda::NormForward<T, P>(Norm::kLayer,
                          {.rows = 4, .cols = 0, .mean = mean.data(), .rstd = rstd.data()});
  for (const C value : mean.Get()) EXPECT_TRUE(std::isnan(value));
  for (const C value : rstd.Get()) EXPECT_TRUE(std::isnan(value));
}

// --- Errors: those of the CPU, and those of the workspace ---

class CudaErrorsTest : public tests::GpuTest {};

TEST_F(CudaErrorsTest, AreThoseOfTheCpu) {
  OnDevice<float> x(std::vector<float>(12)), y(std::vector<float>(12));
  const auto error = [&](const NormForwardArgs<float>& args, double eps = 1e-5) {
    return tests::ErrorOf([&] { cuda::NormForward(Norm::kLayer, args, {.eps = eps}); });
  };
  EXPECT_EQ(error({.rows = -1, .cols = 4, .x = x.data(), .y = y.data()}),
            "[NormForward] rows must be at least 0, got -1");
  EXPECT_EQ(error({.rows = 3, .cols = 4, .x = x.data()}),
            "[NormForward] y must point to 48 bytes, got null");
  EXPECT_EQ(error({.rows = 3, .cols = 4, .x = x.data(), .y = x.data() + 1}),
            "[NormForward] y must not overlap x, got 44 bytes in common");
  EXPECT_EQ(error({.rows = 3, .cols = 4, .x = x.data(), .y = y.data()}, -1),
            "[NormForward] eps must be finite and at least 0, got -1");
  EXPECT_EQ(tests::ErrorOf([&] {
              cuda::NormForward<float>(
                  Norm::kDetach,
                  {.rows = 3, .cols = 4, .x = x.data(), .gain = x.data(), .y = y.data()});
            }),
            "[NormForward] gain must be null for a norm without gain and bias, got an address");
}

TEST_F(CudaErrorsTest, OfTheWorkspace) {
  const int64_t rows = 2, cols = 1 << 18;  // more than clusters hold
  OnDevice<float> x(std::vector<float>(static_cast<size_t>(rows * cols))),
      y(std::vector<float>(static_cast<size_t>(rows * cols)));
  const NormForwardArgs<float> args = {.rows = rows, .cols = cols, .x = x.data(), .y = y.data()};
  const int64_t needed = cuda::WorkspaceBytes(args);
  ASSERT_GT(needed, 0);
  OnDevice<char> space(std::vector<char>(static_cast<size_t>(needed + 16)));
  const auto error = [&](void* workspace, int64_t bytes) {
    return tests::ErrorOf([&] {
      cuda::NormForward(Norm::kLayer, args, {.workspace = workspace, .workspace_bytes = bytes});
    });
  };
  EXPECT_EQ(error(nullptr, 0),
            "[NormForward] workspace must point to " + std::to_string(needed) + " bytes, got null");
  EXPECT_EQ(error(space.data(), needed - 1), "[NormForward] workspace_bytes must be at least " +
                                                 std::to_string(needed) + ", got " +
                                                 std::to_string(needed - 1));
  EXPECT_THAT(error(space.data() + 8, needed), HasSubstr("be aligned to 16 bytes, got"));
  EXPECT_EQ(error(space.data(), needed), "");
  EXPECT_EQ(
      tests::ErrorOf([] { cuda::WorkspaceBytes(NormForwardArgs<float>{.rows = -1, .cols = 3}); }),
      "[WorkspaceBytes] rows must be at least 0, got -1");
}

// Calls throw in a build without CUDA and on a machine without a GPU.
TEST(Cuda, WithoutADeviceCallsThrow) {
  if (cuda::Devices() > 0) GTEST_SKIP() << "there is a GPU";
  std::vector<float> x(12), y(12);
  EXPECT_THAT(tests::ErrorOf([&] {
                cuda::NormForward<float>(Norm::kLayer,
                                         {.rows = 3, .cols = 4, .x = x.data(), .y = y.data()});
              }),
              HasSubstr("[NormForward] "));
}

}  // namespace
}  // namespace planish
