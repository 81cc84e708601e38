// Results have the same bits for any number of threads, division of work, other rows, addresses and
// kind of store, in place or not.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "planish/norm.h"
#include "planish/parallel.h"
#include "src/base/tuning.h"
#include "src/norm/reference.h"
#include "src/norm/rows/rows.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using tests::OnThreads;
using tests::Problem;
using tests::Result;
using tests::SameBits;
using tests::SplitIn;

template <class T>
class BitwiseTest : public ::testing::Test {};
using ElementTypes = ::testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(BitwiseTest, ElementTypes);

struct Shape {
  int64_t rows, cols;
};

// Shapes that split rows, blocks of dgain and dbias, columns of their last reduction, narrow rows,
// the narrowest rows, and columns of long rows.
constexpr Shape kShapes[] = {{300, 1000}, {2100, 600}, {20000, 7}, {70000, 1}, {2, (1 << 17) + 5}};

// Widths on both sides of every limit between kernels (rows.cc). The kernels process rows side by
// side in a vector, rows eight at a time (fewer with non-temporal stores), single rows, several
// chunks, and rows split over threads. Row counts cover a group of eight and a remainder, groups of
// sixteen with interleaved stores, and parameters rearranged for many rows.
constexpr Shape kKernels[] = {{11, 2},    {11, 8},    {11, 9},   {70, 16},          {70, 33},
                              {11, 79},   {11, 80},   {11, 639}, {11, 640},         {11, 1000},
                              {37, 1000}, {19, 4096}, {5, 4097}, {2, (1 << 17) + 3}};

/// Calls f(p, expected, where) for every norm at those widths, on every SIMD target, with both
/// kinds of stores. `expected` uses ordinary stores.
template <class T, class F>
void ForEachKernel(F&& f) {
  for (const Norm norm : tests::kNorms) {
    for (const Shape& shape : kKernels) {
      const Problem<T> p(norm, shape.rows, shape.cols);
      tests::ForEachTarget([&](const std::string& target) {
        const auto expected = tests::Apply(p);
        SCOPED_TRACE(::testing::Message() << tests::NameOf(norm) << ", " << p.rows << " x "
                                          << p.cols << " on " << target);
        f(p, expected);
        SCOPED_TRACE("non-temporal stores");
        const tests::NtStores nt_stores;
        f(p, expected);
      });
    }
  }
}

TYPED_TEST(BitwiseTest, SameInNewMemory) {
  for (const auto& [rows, cols] : kKernels) {
    const Problem<TypeParam> p(Norm::kLayer, rows, cols);
    const tests::NtStores nt_stores;
    const auto expected = tests::Apply(p);
    NormOptions options = p.Options();
    options.new_outputs = true;
    tests::Result<TypeParam> out(p);
    NormForward<TypeParam>(p.norm, tests::ForwardArgs(p, out), options);
    NormBackward<TypeParam>(p.norm, tests::BackwardArgs(p, out), options);
    EXPECT_EQ(out.DiffersIn(expected), "") << rows << " x " << cols;
  }
}

TYPED_TEST(BitwiseTest, SameForEverySplit) {
  for (const auto& [rows, cols] : kShapes) {
    const Problem<TypeParam> p(Norm::kLayer, rows, cols);
    const auto expected = tests::Apply(p, SerialFor);
    for (const int64_t parts : {1, 2, 3, 7, 64, 1001}) {
      int calls = 0;
      EXPECT_EQ(tests::Apply(p, SplitIn(parts, &calls)).DiffersIn(expected), "")
          << rows << " x " << cols << " in " << parts;
      EXPECT_GE(calls, 2);
    }
  }
}

// Calls larger than the L2 cache, with parts smaller than it. The loops for wider rows can then
// prefetch outputs.
TYPED_TEST(BitwiseTest, SameWithinASecondLevelCacheAndBeyond) {
  constexpr int64_t kBytes = int64_t{5} << 19;
  for (const int64_t cols : {47, 64, 100, 257, 500, 1024, 4100}) {
    const int64_t rows = kBytes / (2 * cols * static_cast<int64_t>(sizeof(TypeParam)));
    const Problem<TypeParam> p(Norm::kLayer, rows, cols);
    const auto expected = tests::Apply(p, SerialFor);
    int calls = 0;
    for (const int64_t parts : {2, 7, 64}) {
      EXPECT_EQ(tests::Apply(p, SplitIn(parts, &calls)).DiffersIn(expected), "")
          << rows << " x " << cols << " in " << parts;
    }
  }
}

TYPED_TEST(BitwiseTest, SameOnAnyNumberOfThreads) {
  for (const Norm norm : tests::kNorms) {
    for (const auto& [rows, cols] : kShapes) {
      if (cols == 1 && norm == Norm::kAdaAsCoded) continue;  // has no unbiased deviation
      const Problem<TypeParam> p(norm, rows, cols);
      const auto expected = tests::Apply(p, SerialFor);
      for (const int threads : tests::ThreadCounts()) {
        EXPECT_EQ(tests::Apply(p, OnThreads(threads)).DiffersIn(expected), "")
            << tests::NameOf(norm) << ", " << rows << " x " << cols << " on " << threads;
      }
    }
  }
}

TYPED_TEST(BitwiseTest, SameOnTheLibrarysThreads) {
  const int before = Threads();
  for (const auto& [rows, cols] : kShapes) {
    const Problem<TypeParam> p(Norm::kLayer, rows, cols);
    const auto expected = tests::Apply(p, SerialFor);
    for (const int threads : {1, 2, 3, 7}) {
      SetThreads(threads);
      EXPECT_EQ(tests::Apply(p).DiffersIn(expected), "")
          << rows << " x " << cols << " on " << threads;
    }
  }
  SetThreads(before);
}

TYPED_TEST(BitwiseTest, SameWithParametersInFloat) {
  if constexpr (!std::is_same_v<TypeParam, float>) {
    for (const auto& [rows, cols] : kShapes) {
      const Problem<TypeParam, float> p(Norm::kLayer, rows, cols);
      const auto expected = tests::Apply(p, SerialFor);
      for (const int threads : {2, 3}) {
        EXPECT_EQ(tests::Apply(p, OnThreads(threads)).DiffersIn(expected), "")
            << rows << " x " << cols << " on " << threads;
      }
    }
  }
}

TYPED_TEST(BitwiseTest, SmallWorkStaysOnTheCallingThread) {
  const Problem<TypeParam> p(Norm::kLayer, 4, 1000);
  int calls = 0;
  tests::Apply(p, SplitIn(2, &calls));
  EXPECT_EQ(calls, 0);
}

template <class T>
void ExpectSameInPlace(const Problem<T>& p, const Result<T>& expected) {
  Problem<T> work = p;
  Result<T> out(p);
  auto forward = tests::ForwardArgs(work, out);
  forward.y = work.x.data();
  NormForward<T>(p.norm, forward, p.Options());
  EXPECT_TRUE(SameBits(work.x, expected.y));
  work.x = p.x;
  auto backward = tests::BackwardArgs(work, out);
  backward.dx = work.dy.data();
  NormBackward<T>(p.norm, backward, p.Options());
  EXPECT_TRUE(SameBits(work.dy, expected.dx));
  EXPECT_TRUE(SameBits(out.dgain, expected.dgain));
  EXPECT_TRUE(SameBits(out.dbias, expected.dbias));
}

TYPED_TEST(BitwiseTest, InPlace) {
  tests::ForEachTarget([](const std::string& target) {
    for (const Norm norm : tests::kNorms) {
      for (const int64_t cols : {2, 5, 17, 33, 64, 127, 1000, (1 << 17) + 3}) {
        SCOPED_TRACE(::testing::Message()
                     << tests::NameOf(norm) << ", " << cols << " on " << target);
        const Problem<TypeParam> p(norm, cols > 1000 ? 1 : 20, cols);
        ExpectSameInPlace(p, tests::Apply(p));
      }
    }
  });
}

TYPED_TEST(BitwiseTest, InPlaceInEveryKernel) {
  ForEachKernel<TypeParam>(ExpectSameInPlace<TypeParam>);
}

/// Strided matrix at an offset in a buffer. All other elements hold a mark that no result has.
template <class T>
class Island {
 public:
  Island(int64_t rows, int64_t cols, int64_t stride, int64_t offset)
      : rows_(rows), cols_(cols), stride_(stride), offset_(offset) {
    values_.resize(static_cast<size_t>(offset + rows * stride + 70));
    std::memset(values_.data(), kMark, values_.size() * sizeof(T));
  }
  Island(int64_t cols, int64_t stride, int64_t offset, const std::vector<T>& from)
      : Island(static_cast<int64_t>(from.size()) / cols, cols, stride, offset) {
    for (int64_t r = 0; r < rows_; ++r) {
      std::memcpy(data() + r * stride, &from[static_cast<size_t>(r * cols)],
                  static_cast<size_t>(cols) * sizeof(T));
    }
  }

  T* data() { return values_.data() + offset_; }

  /// Returns the rows. Fails the test if another element has changed.
  std::vector<T> Rows() {
    std::vector<T> rows;
    for (int64_t i = 0; i < static_cast<int64_t>(values_.size()); ++i) {
      const int64_t at = i - offset_;
      const bool inside = at >= 0 && at / stride_ < rows_ && at % stride_ < cols_;
      const T value = values_[static_cast<size_t>(i)];
      if (inside) {
        rows.push_back(value);
      } else if (!IsMark(value)) {
        ADD_FAILURE() << "element outside the rows written, at " << at;
        break;
      }
    }
    return rows;
  }

 private:
  static constexpr int kMark = 0x5b;
  static bool IsMark(T value) {
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    return std::ranges::all_of(bytes, [](unsigned char byte) { return byte == kMark; });
  }

  int64_t rows_, cols_, stride_, offset_;
  std::vector<T> values_;
};

template <class T>
void ExpectSameWithStrides(const Problem<T>& p, const Result<T>& expected, int64_t offset) {
  const int64_t cols = p.cols;
  Island<T> x(cols, cols + 1, offset, p.x), dy(cols, cols + 5, offset / 3, p.dy);
  Island<T> y(p.rows, cols, cols + 2, offset + 1), dx(p.rows, cols, cols + 7, offset);
  Result<T> out(p);
  auto forward = tests::ForwardArgs(p, out);
  forward.x = x.data();
  forward.x_stride = cols + 1;
  forward.y = y.data();
  forward.y_stride = cols + 2;
  NormForward<T>(p.norm, forward, p.Options());
  auto backward = tests::BackwardArgs(p, out);
  backward.x = x.data();
  backward.x_stride = cols + 1;
  backward.dy = dy.data();
  backward.dy_stride = cols + 5;
  backward.dx = dx.data();
  backward.dx_stride = cols + 7;
  NormBackward<T>(p.norm, backward, p.Options());
  out.y = y.Rows();
  out.dx = dx.Rows();
  EXPECT_EQ(out.DiffersIn(expected), "");
}

// Tests strides, and every offset up to a vector's alignment. Elements between rows stay unchanged.
TYPED_TEST(BitwiseTest, StridesAndOffsets) {
  tests::ForEachTarget([](const std::string& target) {
    for (const Norm norm : {Norm::kLayer, Norm::kAda}) {
      for (const int64_t cols : {2, 3, 7, 16, 33, 65, 130}) {
        const Problem<TypeParam> p(norm, 11, cols);
        const auto expected = tests::Apply(p);
        for (int64_t offset = 0; offset < 32; offset += 3) {
          SCOPED_TRACE(::testing::Message() << tests::NameOf(norm) << ", " << cols << " on "
                                            << target << ", offset " << offset);
          ExpectSameWithStrides(p, expected, offset);
        }
      }
    }
  });
}

TYPED_TEST(BitwiseTest, StridesInEveryKernel) {
  ForEachKernel<TypeParam>([](const auto& p, const auto& expected) {
    for (const int64_t offset : {0, 7}) ExpectSameWithStrides(p, expected, offset);
  });
}

/// Returns the sums of the elements, each rounded to T.
template <class T>
std::vector<T> Sum(std::vector<T> a, const std::vector<T>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = tests::FromDouble<T>(tests::ToDouble(a[i]) + tests::ToDouble(b[i]));
  }
  return a;
}

/// Normalizes x + residual into `out` and writes the sums to `sum`, with all rows `stride` apart.
template <class T>
void ForwardOfSum(const Problem<T>& p, const T* x, const T* residual, T* sum, int64_t stride,
                  Result<T>& out) {
  auto forward = tests::ForwardArgs(p, out);
  forward.x = x;
  forward.residual = residual;
  forward.sum = sum;
  forward.x_stride = forward.residual_stride = forward.sum_stride = stride;
  NormForward<T>(p.norm, forward, p.Options());
}

// A residual, its sum in place of x or the residual, and dsum, with strides and dx in place of dy.
// Same bits as without them, except that each sum is rounded to T.
TYPED_TEST(BitwiseTest, ResidualInPlaceInEveryKernel) {
  using T = TypeParam;
  ForEachKernel<T>([&](const Problem<T>& p, const Result<T>&) {
    const int64_t cols = p.cols, stride = cols + 3;
    const std::vector<T>& residual = p.dy;  // arbitrary values
    Problem<T> summed = p;
    summed.x = Sum(p.x, residual);
    auto expected = tests::Apply(summed);
    expected.dx = Sum(expected.dx, residual);
    for (const bool in_x : {false, true}) {
      SCOPED_TRACE(in_x ? "sum in x" : "sum in residual");
      Island<T> x(cols, stride, 1, p.x), addend(cols, stride, 2, residual);
      Island<T> dy(cols, stride, 3, p.dy), dsum(cols, cols + 1, 4, residual);
      Island<T>& sum = in_x ? x : addend;
      Result<T> out(p);
      ForwardOfSum(p, x.data(), addend.data(), sum.data(), stride, out);
      EXPECT_TRUE(SameBits(sum.Rows(), summed.x));
      auto backward = tests::BackwardArgs(p, out);
      backward.x = sum.data();
      backward.x_stride = stride;
      backward.dy = backward.dx = dy.data();
      backward.dy_stride = backward.dx_stride = stride;
      backward.dsum = dsum.data();
      backward.dsum_stride = cols + 1;
      NormBackward<T>(p.norm, backward, p.Options());
      out.dx = dy.Rows();
      EXPECT_EQ(out.DiffersIn(expected), "");
    }
  });
}

// With non-temporal stores, sums are computed by blocks of rows, which start at any alignment. Sums
// and norm equal those of rows without a residual.
TYPED_TEST(BitwiseTest, ResidualWithNtStores) {
  using T = TypeParam;
  const int64_t block = internal::kResidualBytes / static_cast<int64_t>(sizeof(T));
  tests::ForEachTarget([&](const std::string& target) {
    const tests::NtStores nt_stores;
    for (const int64_t cols : {33, 1000, 1024, 20000}) {
      SCOPED_TRACE(testing::Message() << target << ", cols " << cols);
      const Problem<T> p(Norm::kLayer, 5 * block / 2 / cols + 1, cols);
      const std::vector<T>& residual = p.dy;  // arbitrary values
      Problem<T> summed = p;
      summed.x = Sum(p.x, residual);
      Result<T> expected(summed);
      NormForward<T>(p.norm, tests::ForwardArgs(summed, expected), p.Options());
      for (const int64_t stride : {cols, cols + 3}) {
        Island<T> x(cols, stride, 1, p.x), addend(cols, stride, 2, residual);
        Island<T> sum(cols, stride, 5, residual);
        Result<T> out(p);
        ForwardOfSum(p, x.data(), addend.data(), sum.data(), stride, out);
        EXPECT_TRUE(SameBits(sum.Rows(), summed.x));
        EXPECT_TRUE(SameBits(out.y, expected.y));
        EXPECT_TRUE(SameBits(out.mean, expected.mean));
        EXPECT_TRUE(SameBits(out.rstd, expected.rstd));
      }
    }
  });
}

/// Returns whether rows [begin, end) by themselves have the same bits as among all rows.
template <class T>
void ExpectSameAlone(const Problem<T>& p, const Result<T>& all, int64_t begin, int64_t end) {
  SCOPED_TRACE(::testing::Message() << "rows from " << begin << " to " << end);
  const int64_t cols = p.cols;
  Result<T> out(p);
  auto forward = tests::ForwardArgs(p, out);
  forward.rows = end - begin;
  forward.x += begin * cols;
  forward.y += begin * cols;
  forward.mean += begin;
  forward.mean_lo += begin;
  forward.rstd += begin;
  NormForward<T>(p.norm, forward, p.Options());
  auto backward = tests::BackwardArgs(p, out);
  backward.rows = end - begin;
  backward.x += begin * cols;
  backward.dy += begin * cols;
  backward.dx += begin * cols;
  backward.mean += begin;
  backward.mean_lo += begin;
  backward.rstd += begin;
  backward.dgain = backward.dbias = nullptr;
  NormBackward<T>(p.norm, backward, p.Options());
  const auto same = [&](const auto& a, const auto& b, int64_t n) {
    return std::memcmp(&a[static_cast<size_t>(begin * n)], &b[static_cast<size_t>(begin * n)],
                       static_cast<size_t>((end - begin) * n) * sizeof(a[0])) == 0;
  };
  EXPECT_TRUE(same(out.y, all.y, cols));
  EXPECT_TRUE(same(out.dx, all.dx, cols));
  EXPECT_TRUE(same(out.mean, all.mean, 1));
  EXPECT_TRUE(same(out.mean_lo, all.mean_lo, 1));
  EXPECT_TRUE(same(out.rstd, all.rstd, 1));
}

// Each row has the same bits by itself, first, last, and among any number of other rows.
TYPED_TEST(BitwiseTest, ARowDependsOnlyOnItself) {
  tests::ForEachTarget([](const std::string& target) {
    std::vector<int64_t> widths = {127, 128, 129, 1000};
    for (int64_t c = 1; c <= 67; ++c) widths.push_back(c);
    for (const Norm norm : {Norm::kLayer, Norm::kRms}) {
      for (const int64_t cols : widths) {
        SCOPED_TRACE(::testing::Message()
                     << tests::NameOf(norm) << ", " << cols << " on " << target);
        const Problem<TypeParam> p(norm, 37, cols);
        const auto all = tests::Apply(p);
        for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1},
                                         {1, 2},
                                         {36, 37},
                                         {17, 18},
                                         {3, 5},
                                         {2, 9},
                                         {5, 37},
                                         {0, 33}}) {
          ExpectSameAlone(p, all, begin, end);
        }
      }
    }
  });
}

TYPED_TEST(BitwiseTest, ARowDependsOnlyOnItselfInEveryKernel) {
  ForEachKernel<TypeParam>([](const auto& p, const auto& all) {
    const int64_t rows = p.rows;
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, 1}, {rows - 1, rows}, {1, rows}, {0, rows - 1}}) {
      ExpectSameAlone(p, all, begin, end);
    }
  });
}

// Row kernels with a choice of stores.
template <class T>
struct Kernels {
  using C = Compute<T>;

  Kernels(const Problem<T>& p, const Result<T>& statistics) : recipe(internal::RecipeOf(p.norm)) {
    for (const T value : p.gain) gain.push_back(static_cast<C>(tests::ToDouble(value)));
    for (const T value : p.bias) bias.push_back(static_cast<C>(tests::ToDouble(value)));
    forward.recipe = backward.recipe = recipe;
    forward.eps = backward.eps = p.eps;
    forward.scale = backward.scale = static_cast<C>(p.scale);
    forward.slope = backward.slope = static_cast<C>(p.slope);
    forward.rows = backward.rows = p.rows;
    forward.cols = backward.cols = p.cols;
    forward.x = backward.x = p.x.data();
    forward.x_stride = backward.x_stride = p.cols;
    forward.gain = backward.gain = gain.data();
    forward.bias = bias.data();
    backward.dy = p.dy.data();
    backward.dy_stride = p.cols;
    backward.mean = recipe.centre ? statistics.mean.data() : nullptr;
    backward.mean_lo = recipe.centre ? statistics.mean_lo.data() : nullptr;
    backward.rstd = statistics.rstd.data();
  }

  internal::Recipe recipe;
  std::vector<C> gain, bias;
  internal::RowsForward<T> forward;
  internal::RowsBackward<T> backward;
};

// Non-temporal stores need whole aligned vectors: contiguous rows share some, strided rows do not.
// Ordinary stores can prefetch. Tests every offset from a cache line.
TYPED_TEST(BitwiseTest, WithOrWithoutNtStores) {
  using T = TypeParam;
  const int64_t line = 64 / static_cast<int64_t>(sizeof(T));
  tests::ForEachTarget([&](const std::string& target) {
    for (const Norm norm : tests::kNorms) {
      for (const int64_t cols : {1, 7, 16, 31, 33, 64, 100, 130, 4100}) {
        if (cols == 1 && norm == Norm::kAdaAsCoded) continue;
        const Problem<T> p(norm, 9, cols);
        const auto expected = tests::Apply(p);
        Kernels<T> kernels(p, expected);
        const int64_t step = cols > 1000 ? 7 : 1;
        for (int64_t offset = 0; offset < line; offset += step) {
          for (const int64_t stride : {cols, cols + 3}) {
            for (const std::string_view stores : {"ordinary", "prefetched", "non-temporal"}) {
              SCOPED_TRACE(::testing::Message()
                           << tests::NameOf(norm) << ", " << cols << " on " << target << ", offset "
                           << offset << ", stride " << stride << ", " << stores);
              const bool use_nt_stores = stores == "non-temporal",
                         prefetch_output = stores == "prefetched";
              Island<T> y(p.rows, cols, stride, offset), dx(p.rows, cols, stride, offset);
              kernels.forward.y = y.data();
              kernels.backward.dx = dx.data();
              kernels.forward.y_stride = kernels.backward.dx_stride = stride;
              kernels.forward.use_nt_stores = kernels.backward.use_nt_stores = use_nt_stores;
              kernels.forward.prefetch_output = kernels.backward.prefetch_output = prefetch_output;
              internal::ForwardRows(kernels.forward, 0, p.rows);
              internal::BackwardRows<T>(kernels.backward, 0, p.rows, nullptr, nullptr);
              ASSERT_TRUE(SameBits(y.Rows(), expected.y));
              ASSERT_TRUE(SameBits(dx.Rows(), expected.dx));
              // In place.
              Island<T> x(cols, stride, offset, p.x), dy(cols, stride, offset, p.dy);
              Kernels<T> in_place(p, expected);
              in_place.forward.use_nt_stores = in_place.backward.use_nt_stores = use_nt_stores;
              in_place.forward.prefetch_output = in_place.backward.prefetch_output =
                  prefetch_output;
              in_place.forward.y_stride = in_place.backward.dx_stride = stride;
              in_place.forward.x = in_place.forward.y = x.data();
              in_place.backward.dy = in_place.backward.dx = dy.data();
              in_place.forward.x_stride = in_place.backward.dy_stride = stride;
              internal::ForwardRows(in_place.forward, 0, p.rows);
              internal::BackwardRows<T>(in_place.backward, 0, p.rows, nullptr, nullptr);
              ASSERT_TRUE(SameBits(x.Rows(), expected.y));
              ASSERT_TRUE(SameBits(dy.Rows(), expected.dx));
            }
          }
        }
      }
    }
  });
}

// A call large enough for non-temporal stores has the bits of its rows one by one.
TYPED_TEST(BitwiseTest, LargeCalls) {
  using T = TypeParam;
  const int64_t cols = 1000;
  const int64_t bytes = internal::CurrentTuning().nt_store_call_bytes;
  const int64_t rows = bytes / (2 * cols * static_cast<int64_t>(sizeof(T)));
  if (rows > 100000) GTEST_SKIP() << "ordinary stores are used up to " << bytes;
  Problem<T> p(Norm::kLayerSimple, 64, cols);
  const auto expected = tests::Apply(p);
  Problem<T> large = p;  // repeats the same rows
  large.rows = rows + 64 - rows % 64;
  large.x.resize(static_cast<size_t>(large.rows * cols));
  for (size_t i = p.x.size(); i < large.x.size(); ++i) large.x[i] = large.x[i - p.x.size()];
  std::vector<T> y(large.x.size());
  NormForward<T>(large.norm,
                 {.rows = large.rows, .cols = cols, .x = large.x.data(), .y = y.data()});
  for (int64_t r = 0; r < large.rows; r += 64) {
    ASSERT_EQ(std::memcmp(&y[static_cast<size_t>(r * cols)], expected.y.data(),
                          expected.y.size() * sizeof(T)),
              0)
        << r;
  }
}

// A long row split into chunks for threads has the bits of the whole row.
TYPED_TEST(BitwiseTest, LongRowsInPartsOrWhole) {
  using T = TypeParam;
  tests::ForEachTarget([](const std::string& target) {
    for (const Norm norm : {Norm::kLayer, Norm::kAdaAsCoded, Norm::kRms}) {
      for (const int64_t cols : {int64_t{internal::kLongRowColumns}, int64_t{200001}}) {
        SCOPED_TRACE(::testing::Message()
                     << tests::NameOf(norm) << ", " << cols << " on " << target);
        const Problem<T> p(norm, 2, cols);
        const auto in_parts = tests::Apply(p, OnThreads(3));
        Result<T> whole(p);
        Kernels<T> kernels(p, whole);
        kernels.forward.y = whole.y.data();
        kernels.forward.y_stride = cols;
        kernels.forward.mean = whole.mean.data();
        kernels.forward.mean_lo = whole.mean_lo.data();
        kernels.forward.rstd = whole.rstd.data();
        internal::ForwardRows(kernels.forward, 0, 2);
        kernels.backward.dx = whole.dx.data();
        kernels.backward.dx_stride = cols;
        std::vector<Compute<T>> dgain(static_cast<size_t>(cols)), dbias(dgain.size());
        const bool affine = tests::IsAffine(norm);
        internal::BackwardRows<T>(kernels.backward, 0, 2, affine ? dgain.data() : nullptr,
                                  affine ? dbias.data() : nullptr);
        for (size_t c = 0; affine && c < dgain.size(); ++c) {
          whole.dgain[c] = tests::FromDouble<T>(static_cast<double>(dgain[c]));
          whole.dbias[c] = tests::FromDouble<T>(static_cast<double>(dbias[c]));
        }
        EXPECT_EQ(whole.DiffersIn(in_parts), "");
      }
    }
  });
}

TEST(ShapesTest, OneRowOfTenMillion) {
  Problem<float> p(Norm::kLayer, 1, 10'000'000);
  const auto one = tests::Apply(p, OnThreads(1)), many = tests::Apply(p, OnThreads(5));
  EXPECT_EQ(many.DiffersIn(one), "");
  // Unit noise: the mean is within 5 / sqrt(10^7) of 0, and the variance within 5 * sqrt(2 / 10^7)
  // of 1, five standard deviations each.
  EXPECT_NEAR(one.mean[0], 0, 1.6e-3);
  EXPECT_NEAR(one.rstd[0], 1, 1.2e-3);
  // Documented accuracy of a row this long: xhat within 1e-6 * max(1, |xhat|), and two roundings.
  const std::vector<double> x(p.x.begin(), p.x.end());
  const internal::Recipe recipe = internal::RecipeOf(p.norm);
  const double mean = internal::ReferenceMean(recipe, x);
  const double rstd = internal::ReferenceRstd(recipe, x, mean, p.eps);
  for (size_t c = 0; c < x.size(); ++c) {
    const double gain = static_cast<double>(p.gain[c]), xhat = (x[c] - mean) * rstd;
    const double y = gain * xhat + static_cast<double>(p.bias[c]);
    ASSERT_NEAR(static_cast<double>(one.y[c]), y,
                1e-6 * std::abs(gain) * std::max(1.0, std::abs(xhat)) +
                    0x1p-23 * (std::abs(gain * xhat) + std::abs(y)));
  }
}

TEST(ShapesTest, TenMillionRowsOfOne) {
  const int64_t rows = 10'000'000;
  std::vector<float> x(static_cast<size_t>(rows)), y(x.size(), 7), dy(x.size(), 1), dx(x.size(), 7);
  std::vector<float> mean(x.size()), mean_lo(x.size()), rstd(x.size());
  for (size_t r = 0; r < x.size(); ++r) x[r] = static_cast<float>(r % 1000) * 1.1f;
  const float gain = 3, bias = 5;
  float dgain = 7, dbias = 7;
  NormForward<float>(Norm::kLayer, {.rows = rows,
                                    .cols = 1,
                                    .x = x.data(),
                                    .gain = &gain,
                                    .bias = &bias,
                                    .y = y.data(),
                                    .mean = mean.data(),
                                    .mean_lo = mean_lo.data(),
                                    .rstd = rstd.data()});
  NormBackward<float>(Norm::kLayer, {.rows = rows,
                                     .cols = 1,
                                     .dy = dy.data(),
                                     .x = x.data(),
                                     .gain = &gain,
                                     .mean = mean.data(),
                                     .mean_lo = mean_lo.data(),
                                     .rstd = rstd.data(),
                                     .dx = dx.data(),
                                     .dgain = &dgain,
                                     .dbias = &dbias});
  EXPECT_EQ(mean, x);
  EXPECT_TRUE(std::ranges::all_of(y, [](float value) { return value == 5; }));
  EXPECT_TRUE(std::ranges::all_of(dx, [](float value) { return value == 0; }));
  EXPECT_EQ(dgain, 0);
  EXPECT_EQ(dbias, 1e7f);  // sums of ones are exact
}

/// Returns zeroed memory that occupies no pages until it is written, or null.
template <class T>
std::unique_ptr<T, decltype(&std::free)> Zeros(int64_t n) {
  return {static_cast<T*>(std::calloc(static_cast<size_t>(n), sizeof(T))), &std::free};
}

// Two rows, farther apart than a 32-bit index can express. Only their pages are used.
TYPED_TEST(BitwiseTest, StridesBeyond32Bits) {
  using T = TypeParam;
  const int64_t stride = (int64_t{1} << 31) + 64, most = (int64_t{1} << 17) + 3;
  const auto read = Zeros<T>(stride + most), written = Zeros<T>(stride + most);
  if (!read || !written) GTEST_SKIP() << "no memory to reserve";
  for (const int64_t cols : {int64_t{5}, int64_t{100}, int64_t{1000}, most}) {
    const Problem<T> p(Norm::kLayer, 2, cols);
    const auto expected = tests::Apply(p);
    const auto put = [&](const std::vector<T>& values) {
      std::copy_n(values.begin(), cols, read.get());
      std::copy_n(values.begin() + cols, cols, read.get() + stride);
    };
    const auto rows = [&] {
      std::vector<T> values(written.get(), written.get() + cols);
      values.insert(values.end(), written.get() + stride, written.get() + stride + cols);
      return values;
    };
    Result<T> out(p);
    put(p.x);
    auto forward = tests::ForwardArgs(p, out);
    forward.x = read.get();
    forward.y = written.get();
    forward.x_stride = forward.y_stride = stride;
    NormForward<T>(p.norm, forward, p.Options());
    out.y = rows();
    put(p.dy);
    auto backward = tests::BackwardArgs(p, out);
    backward.dy = read.get();
    backward.dx = written.get();
    backward.dy_stride = backward.dx_stride = stride;
    NormBackward<T>(p.norm, backward, p.Options());
    out.dx = rows();
    put(p.x);
    backward.dy = p.dy.data();
    backward.dy_stride = 0;
    backward.x = read.get();
    backward.x_stride = stride;
    NormBackward<T>(p.norm, backward, p.Options());
    EXPECT_TRUE(SameBits(rows(), expected.dx)) << cols;
    EXPECT_EQ(out.DiffersIn(expected), "") << cols;
  }
}

// More elements than 32 bits can count: as one row, then as rows of 64. They alternate between 3
// and -3, except that the last 64 are 0. The row's mean is 0 and its deviation 3 - 5e-8, so the
// first output alternates between 1 and -1, rounded to eight digits. The second output is 3 and -3
// by its gain, and its last row is the bias.
TEST(ShapesTest, MoreElementsThan32BitsCount) {
  if (!tests::AreLongTests()) GTEST_SKIP() << "takes 11 seconds: a long test (PLANISH_LONG_TESTS)";
  const int64_t n = (int64_t{1} << 31) + 64;
  if (sysconf(_SC_AVPHYS_PAGES) < 6 * (int64_t{1} << 30) / sysconf(_SC_PAGESIZE)) {
    GTEST_SKIP() << "needs 4.3 GB of memory";
  }
  const auto x = Zeros<bfloat16>(n);
  if (!x) GTEST_SKIP() << "no memory to reserve";
  const auto expect = [&](float first, float last) {
    const auto check = [&](int64_t i) {
      ASSERT_EQ(ToFloat(x.get()[i]), i >= n - 64 ? last : i % 2 ? -first : first) << i;
    };
    for (int64_t i = 0; i < n; i += 61) check(i);  // at every position of a vector
    for (int64_t i = n - 1000; i < n; ++i) check(i);
  };
  const bfloat16 three = ToBfloat16(3), minus = ToBfloat16(-3);
  for (int64_t i = 0; i < n - 64; ++i) x.get()[i] = i % 2 ? minus : three;
  NormForward<bfloat16>(Norm::kLayerSimple, {.rows = 1, .cols = n, .x = x.get(), .y = x.get()});
  expect(1, 0);
  const std::vector<bfloat16> gain(64, three), bias(64, ToBfloat16(0x1p-20f));
  NormForward<bfloat16>(Norm::kLayer, {.rows = n / 64,
                                       .cols = 64,
                                       .x = x.get(),
                                       .gain = gain.data(),
                                       .bias = bias.data(),
                                       .y = x.get()});
  expect(3, 0x1p-20f);
}

}  // namespace
}  // namespace planish
