#include "src/base/simd/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "planish/parallel.h"
#include "planish/target.h"
#include "planish/types.h"

namespace planish::internal {
namespace {

template <class F>
void ForEachTarget(F&& f) {
  const std::string before = Target();
  for (const std::string& target : Targets()) {
    SetTarget(target);
    f(target);
  }
  SetTarget(before);
}

template <class T>
std::vector<T> Random(int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<T> number(-1, 1);
  std::vector<T> values(static_cast<size_t>(n));
  for (T& value : values) value = number(random);
  return values;
}

/// Matrix of rows by cols elements, with rows `stride` elements apart.
template <class T>
struct Matrix {
  Matrix(int64_t r, int64_t c, int64_t gap, unsigned seed)
      : rows(r), cols(c), stride(c + gap), values(Random<T>(r * (c + gap), seed)) {}
  T& At(int64_t r, int64_t c) { return values[static_cast<size_t>(r * stride + c)]; }
  const T& At(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * stride + c)]; }
  const T* data() const { return values.data(); }
  T* data() { return values.data(); }

  Matrix Transposed(int64_t gap) const {
    Matrix other(cols, rows, gap, 99);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) other.At(c, r) = At(r, c);
    }
    return other;
  }

  int64_t rows, cols, stride;
  std::vector<T> values;
};

template <class T>
bool SameBits(const Matrix<T>& a, const Matrix<T>& b) {
  return a.values.size() == b.values.size() &&
         std::memcmp(a.data(), b.data(), a.values.size() * sizeof(T)) == 0;
}

/// a * w^T, and the product of the absolute values.
template <class T>
struct Exact {
  Exact(const Matrix<T>& a, const Matrix<T>& w) : cols(w.rows), sums(a.rows * cols) {
    magnitudes = sums;
    for (int64_t r = 0; r < a.rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        long double sum = 0, magnitude = 0;
        for (int64_t i = 0; i < a.cols; ++i) {
          const long double product = static_cast<long double>(a.At(r, i)) * w.At(c, i);
          sum += product;
          magnitude += std::abs(product);
        }
        sums[static_cast<size_t>(r * cols + c)] = sum;
        magnitudes[static_cast<size_t>(r * cols + c)] = magnitude;
      }
    }
  }

  /// Returns whether y is c0 + a * w^T up to rounding. A term is rounded in its product and in at
  /// most `depth` additions, one of them to c0. Each rounds by half an ulp of the partial sum,
  /// which `magnitudes` bounds.
  bool Close(T y, int64_t r, int64_t c, T c0, int64_t depth) const {
    const auto i = static_cast<size_t>(r * cols + c);
    const long double unit = std::numeric_limits<T>::epsilon() / 2;
    const long double roundings = static_cast<long double>(depth + 1);
    const long double bound = roundings * unit / (1 - roundings * unit);
    const long double error = std::abs(y - (c0 + sums[i]));
    return error <= bound * (std::abs(c0) + magnitudes[i]);
  }

  int64_t cols;
  std::vector<long double> sums, magnitudes;
};

constexpr int64_t kRows[] = {0, 1, 2, 5, 6, 7, 13, 64, 100};
constexpr int64_t kColumns[] = {0, 1, 3, 16, 17, 31, 64, 250};
// Depths on both sides of a block.
constexpr int64_t kDepths[] = {0, 1, 3, 16, 17, 31, 64, 250, 256, 600};

template <class T>
class GemmTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(GemmTest, Types);

TYPED_TEST(GemmTest, IsTheProduct) {
  using T = TypeParam;
  for (const int64_t k : kDepths) {
    const Matrix<T> a(100, k, 3, 1), w(250, k, 5, 2);
    const Matrix<T> a_transposed = a.Transposed(2), w_transposed = w.Transposed(4);
    const Exact<T> exact(a, w);
    ForEachTarget([&](const std::string& target) {
      for (const int64_t n : kColumns) {
        PackedMatrix<T> packed, packed_transposed;
        packed.Pack({.data = w.data(), .n = n, .k = k, .stride = w.stride}, SerialFor);
        packed_transposed.Pack({.data = w_transposed.data(),
                                .n = n,
                                .k = k,
                                .stride = w_transposed.stride,
                                .transposed = true},
                               SerialFor);
        ASSERT_EQ(packed.columns(), n);
        ASSERT_EQ(packed.depth(), k);
        for (const int64_t m : kRows) {
          for (const bool transposed : {false, true}) {
            for (const bool accumulate : {false, true}) {
              const Matrix<T> before(m, n, 7, 3);
              Matrix<T> c = before;
              const Matrix<T>& from = transposed ? a_transposed : a;
              MultiplyAll<T>({.rows = m,
                              .a = from.data(),
                              .a_stride = from.stride,
                              .a_transposed = transposed,
                              .c = c.data(),
                              .c_stride = c.stride,
                              .accumulate = accumulate},
                             transposed ? packed_transposed : packed, SerialFor);
              for (int64_t r = 0; r < m; ++r) {
                for (int64_t j = 0; j < n; ++j) {
                  ASSERT_TRUE(exact.Close(c.At(r, j), r, j, accumulate ? before.At(r, j) : T{0}, k))
                      << target << " m " << m << " n " << n << " k " << k << " at " << r << ", "
                      << j << (transposed ? " transposed" : "") << (accumulate ? " added" : "");
                }
                for (int64_t j = n; j < c.stride; ++j) {
                  ASSERT_EQ(c.At(r, j), before.At(r, j)) << target << " beyond " << n;
                }
              }
            }
          }
        }
      }
    });
  }
}

// 13 units of 3 gates, interleaved in groups of 4 units, with room for 16 units.
constexpr int64_t kUnits = 13, kGates = 3;
int64_t RowOf(int64_t j) {
  constexpr int64_t kWidth = 4;
  const int64_t gate = j / kWidth % kGates, unit = j / (kWidth * kGates) * kWidth + j % kWidth;
  return unit < kUnits ? gate * kUnits + unit : -1;
}

TYPED_TEST(GemmTest, ColumnsMayBePermuted) {
  using T = TypeParam;
  const Matrix<T> a(9, 301, 0, 1), w(kGates * kUnits, 301, 0, 2);
  const Exact<T> exact(a, w);
  ForEachTarget([&](const std::string& target) {
    PackedMatrix<T> packed;
    packed.Pack({.data = w.data(), .n = w.rows, .k = w.cols, .stride = w.stride}, 16 * kGates,
                RowOf, SerialFor);
    Matrix<T> c(9, 16 * kGates, 0, 3);
    MultiplyAll<T>(
        {.rows = 9, .a = a.data(), .a_stride = a.stride, .c = c.data(), .c_stride = c.stride},
        packed, SerialFor);
    for (int64_t r = 0; r < c.rows; ++r) {
      for (int64_t j = 0; j < c.cols; ++j) {
        if (RowOf(j) < 0) {
          ASSERT_EQ(c.At(r, j), 0) << target;
        } else {
          ASSERT_TRUE(exact.Close(c.At(r, j), r, RowOf(j), 0, w.cols)) << target << " " << j;
        }
      }
    }
  });
}

TYPED_TEST(GemmTest, DepthMayBePermuted) {
  using T = TypeParam;
  const Matrix<T> a(9, kGates * kUnits, 0, 1), w(300, kGates * kUnits, 0, 2);
  const Matrix<T> from = w.Transposed(3);
  const Exact<T> exact(a, w);
  // Elements that meet padding must be finite, but do not affect the result.
  Matrix<T> permuted(9, 16 * kGates, 0, 3);
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t i = 0; i < permuted.cols; ++i) {
      if (RowOf(i) >= 0) permuted.At(r, i) = a.At(r, RowOf(i));
    }
  }
  ForEachTarget([&](const std::string& target) {
    PackedMatrix<T> packed;
    packed.Pack(
        {.data = from.data(), .n = w.rows, .k = w.cols, .stride = from.stride, .transposed = true},
        16 * kGates, RowOf, SerialFor);
    ASSERT_EQ(packed.columns(), 300);
    ASSERT_EQ(packed.depth(), 16 * kGates);
    Matrix<T> c(9, 300, 0, 3);
    MultiplyAll<T>({.rows = 9,
                    .a = permuted.data(),
                    .a_stride = permuted.stride,
                    .c = c.data(),
                    .c_stride = c.stride},
                   packed, SerialFor);
    for (int64_t r = 0; r < c.rows; ++r) {
      for (int64_t j = 0; j < c.cols; ++j) {
        ASSERT_TRUE(exact.Close(c.At(r, j), r, j, 0, permuted.cols)) << target << " " << j;
      }
    }
  });
}

TYPED_TEST(GemmTest, TheSameBitsForAnyRowsAndPanels) {
  using T = TypeParam;
  // More rows than one part.
  const Matrix<T> a(300, 600, 0, 1), w(250, 600, 0, 2);
  const Matrix<T> a_transposed = a.Transposed(0);
  ForEachTarget([&](const std::string& target) {
    PackedMatrix<T> packed;
    packed.Pack({.data = w.data(), .n = w.rows, .k = w.cols, .stride = w.stride}, SerialFor);
    Matrix<T> whole(a.rows, w.rows, 0, 3);
    Multiply<T>({.rows = a.rows,
                 .a = a.data(),
                 .a_stride = a.stride,
                 .c = whole.data(),
                 .c_stride = whole.stride},
                packed, 0, packed.panels());
    for (const bool transposed : {false, true}) {
      for (const int64_t rows : {1, 2, 3, 5, 8, 15, 33, 64, 300}) {
        for (const int64_t panels : {int64_t{1}, int64_t{2}, int64_t{5}, packed.panels()}) {
          Matrix<T> c(a.rows, w.rows, 0, 4);
          for (int64_t r = 0; r < a.rows; r += rows) {
            for (int64_t p = 0; p < packed.panels(); p += panels) {
              Multiply<T>({.rows = std::min(rows, a.rows - r),
                           .a = transposed ? &a_transposed.At(0, r) : &a.At(r, 0),
                           .a_stride = transposed ? a_transposed.stride : a.stride,
                           .a_transposed = transposed,
                           .c = &c.At(r, 0),
                           .c_stride = c.stride},
                          packed, p, std::min(p + panels, packed.panels()));
            }
          }
          ASSERT_TRUE(SameBits(whole, c))
              << target << " " << rows << " rows, " << panels << " panels";
        }
      }
    }
  });
}

TYPED_TEST(GemmTest, RowsMayLieInBlocks) {
  using T = TypeParam;
  // `rows` of every 11 rows, starting with the third.
  const Matrix<T> a(11 * 40, 300, 5, 1), w(70, 300, 0, 2);
  ForEachTarget([&](const std::string& target) {
    PackedMatrix<T> packed;
    packed.Pack({.data = w.data(), .n = w.rows, .k = w.cols, .stride = w.stride}, SerialFor);
    for (const int64_t rows : {1, 2, 3, 8}) {
      for (const int64_t blocks : {1, 2, 3, 40}) {
        Matrix<T> expected(rows * blocks, w.rows, 0, 3), c(rows * blocks, w.rows, 0, 4);
        for (int64_t b = 0; b < blocks; ++b) {
          Multiply<T>({.rows = rows,
                       .a = &a.At(11 * b + 2, 0),
                       .a_stride = a.stride,
                       .c = &expected.At(rows * b, 0),
                       .c_stride = expected.stride},
                      packed, 0, packed.panels());
        }
        Multiply<T>({.rows = rows * blocks,
                     .a = &a.At(2, 0),
                     .a_stride = a.stride,
                     .a_block = rows,
                     .a_block_stride = 11 * a.stride,
                     .c = c.data(),
                     .c_stride = c.stride},
                    packed, 0, packed.panels());
        EXPECT_TRUE(SameBits(expected, c)) << target << " " << rows << " rows, " << blocks;
      }
    }
  });
}

class RestoredThreads {
 public:
  ~RestoredThreads() { SetThreads(before_); }

 private:
  int before_ = Threads();
};

/// Splits into as many ranges as possible and runs the last one first.
void LastFirst(int64_t begin, int64_t end, int64_t grain, RangeTask task) {
  for (int64_t i = begin + (end - begin - 1) / grain * grain; i >= begin; i -= grain) {
    task(i, std::min(end, i + grain));
  }
}

TYPED_TEST(GemmTest, TheSameBitsForAnyThreads) {
  using T = TypeParam;
  const RestoredThreads restored;
  const Matrix<T> a(700, 300, 0, 1), w(250, 300, 0, 2);
  ForEachTarget([&](const std::string& target) {
    const auto product = [&](const ParallelFor& parallel_for) {
      PackedMatrix<T> packed;
      packed.Pack({.data = w.data(), .n = w.rows, .k = w.cols, .stride = w.stride}, parallel_for);
      Matrix<T> c(a.rows, w.rows, 0, 3);
      MultiplyAll<T>({.rows = a.rows,
                      .a = a.data(),
                      .a_stride = a.stride,
                      .c = c.data(),
                      .c_stride = c.stride},
                     packed, parallel_for);
      return c;
    };
    const auto gradient = [&](const ParallelFor& parallel_for) {
      PackedMatrix<T> scratch;
      // Reads a as 2800 rows of 75 elements.
      Matrix<T> c(75, 75, 0, 4);
      MultiplyTransposed<T>({.m = 2800,
                             .n = 75,
                             .k = 75,
                             .a = a.data(),
                             .a_stride = 75,
                             .b = a.data(),
                             .b_stride = 75,
                             .c = c.data(),
                             .c_stride = c.stride,
                             .accumulate = true},
                            scratch, parallel_for);
      return c;
    };
    const Matrix<T> c = product(SerialFor), dw = gradient(SerialFor);
    EXPECT_TRUE(SameBits(c, product(LastFirst))) << target;
    EXPECT_TRUE(SameBits(dw, gradient(LastFirst))) << target;
    for (const int threads : {1, 2, 3, 7}) {
      SetThreads(threads);
      EXPECT_TRUE(SameBits(c, product({}))) << target << " on " << threads;
      EXPECT_TRUE(SameBits(dw, gradient({}))) << target << " on " << threads;
    }
  });
}

TYPED_TEST(GemmTest, TransposedIsTheSumOverRows) {
  using T = TypeParam;
  for (const int64_t m : {0, 1, 255, 256, 257, 1024, 1025, 2500}) {
    const Matrix<T> a(m, 31, 2, 1), b(m, 65, 3, 2);
    const Exact<T> exact(a.Transposed(0), b.Transposed(0));
    ForEachTarget([&](const std::string& target) {
      PackedMatrix<T> scratch;
      for (const int64_t n : {0, 1, 14, 31}) {
        for (const int64_t k : {0, 1, 17, 65}) {
          for (const bool accumulate : {false, true}) {
            const Matrix<T> before(n, k, 1, 3);
            Matrix<T> c = before;
            MultiplyTransposed<T>({.m = m,
                                   .n = n,
                                   .k = k,
                                   .a = a.data(),
                                   .a_stride = a.stride,
                                   .b = b.data(),
                                   .b_stride = b.stride,
                                   .c = c.data(),
                                   .c_stride = c.stride,
                                   .accumulate = accumulate},
                                  scratch, SerialFor);
            for (int64_t r = 0; r < n; ++r) {
              for (int64_t j = 0; j < k; ++j) {
                ASSERT_TRUE(exact.Close(c.At(r, j), r, j, accumulate ? before.At(r, j) : T{0}, m))
                    << target << " m " << m << " n " << n << " k " << k;
              }
              ASSERT_EQ(c.At(r, k), before.At(r, k)) << target;
            }
          }
        }
      }
    });
  }
}

// A packed matrix is multiplied on the target for which it was packed, even if another is in use.
TYPED_TEST(GemmTest, TheTargetIsThatOfPacking) {
  using T = TypeParam;
  const Matrix<T> a(9, 40, 0, 1), w(70, 40, 0, 2);
  const Exact<T> exact(a, w);
  ForEachTarget([&](const std::string& target) {
    PackedMatrix<T> packed;
    packed.Pack({.data = w.data(), .n = w.rows, .k = w.cols, .stride = w.stride}, SerialFor);
    ForEachTarget([&](const std::string& other) {
      Matrix<T> c(9, 70, 0, 3);
      MultiplyAll<T>(
          {.rows = 9, .a = a.data(), .a_stride = a.stride, .c = c.data(), .c_stride = c.stride},
          packed, SerialFor);
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t j = 0; j < c.cols; ++j) {
          ASSERT_TRUE(exact.Close(c.At(r, j), r, j, 0, 40)) << target << " then " << other;
        }
      }
    });
  });
}

// --- Rounded weights ---

PackedMatrix<float> Packed(const Matrix<float>& w, WeightType type,
                           const ParallelFor& parallel_for = SerialFor) {
  PackedMatrix<float> packed;
  packed.Pack({.data = w.data(), .n = w.rows, .k = w.cols, .stride = w.stride}, w.rows, nullptr,
              parallel_for, type);
  return packed;
}

Matrix<float> Product(const Matrix<float>& a, const PackedMatrix<float>& packed,
                      bool accumulate = false, const ParallelFor& parallel_for = SerialFor) {
  Matrix<float> c(a.rows, packed.columns(), 7, 3);
  MultiplyAll<float>({.rows = a.rows,
                      .a = a.data(),
                      .a_stride = a.stride,
                      .c = c.data(),
                      .c_stride = c.stride,
                      .accumulate = accumulate},
                     packed, parallel_for);
  return c;
}

TEST(GemmRoundedTest, Bfloat16HasTheBitsOfTheProductWithRoundedWeights) {
  for (const int64_t k : kDepths) {
    for (const int64_t n : kColumns) {
      const Matrix<float> w(n, k, 5, 2);
      Matrix<float> rounded = w;
      for (float& value : rounded.values) value = ToFloat(ToBfloat16(value));
      ForEachTarget([&](const std::string& target) {
        const PackedMatrix<float> full = Packed(rounded, WeightType::kFull);
        const PackedMatrix<float> packed = Packed(w, WeightType::kBfloat16);
        for (const int64_t m : kRows) {
          const Matrix<float> a(m, k, 3, 1);
          for (const bool accumulate : {false, true}) {
            ASSERT_TRUE(SameBits(Product(a, full, accumulate), Product(a, packed, accumulate)))
                << target << " m " << m << " n " << n << " k " << k << " added " << accumulate;
          }
        }
      });
    }
  }
}

/// Values rounded to integers of at most `limit`, times a scale. Rounds x * (limit / largest) or x
/// / scale in float: near a tie the two can differ.
struct Quantized {
  Quantized(const float* values, int64_t count, float limit, bool divides) {
    float largest = kMinQuantized;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
    scale = largest / limit;
    const float inverse = limit / largest;
    for (int64_t i = 0; i < count; ++i) {
      integers.push_back(std::nearbyint(divides ? values[i] / scale : values[i] * inverse));
    }
  }
  float scale;
  std::vector<double> integers;
};

TEST(GemmRoundedTest, Int8IsTheProductOfTheIntegersTimesTheScales) {
  for (const int64_t k : kDepths) {
    const Matrix<float> a(100, k, 3, 1), w(250, k, 5, 2);
    std::vector<Quantized> rows, columns;  // a row has an element for each block of the depth
    const int64_t blocks = (k + kGemmDepth - 1) / kGemmDepth;
    for (int64_t r = 0; r < a.rows; ++r) {
      for (int64_t b = 0; b < blocks; ++b) {
        rows.emplace_back(a.data() + r * a.stride + b * kGemmDepth,
                          std::min(kGemmDepth, k - b * kGemmDepth), 32767, false);
      }
    }
    for (int64_t j = 0; j < w.rows; ++j)
      columns.emplace_back(w.data() + j * w.stride, k, 127, true);
    Matrix<float> first(0, 0, 0, 0);
    ForEachTarget([&](const std::string& target) {
      const PackedMatrix<float> packed = Packed(w, WeightType::kInt8);
      for (const int64_t m : kRows) {
        Matrix<float> some = a;
        some.rows = m;
        for (const bool accumulate : {false, true}) {
          const Matrix<float> before(m, w.rows, 7, 3), c = Product(some, packed, accumulate);
          for (int64_t r = 0; r < m; ++r) {
            for (int64_t j = 0; j < w.rows; ++j) {
              const Quantized& column = columns[static_cast<size_t>(j)];
              double sum = accumulate ? before.At(r, j) : 0, magnitude = std::abs(sum);
              for (int64_t b = 0; b < blocks; ++b) {
                const Quantized& row = rows[static_cast<size_t>(r * blocks + b)];
                double block = 0;
                for (size_t i = 0; i < row.integers.size(); ++i) {
                  const double weight = column.integers[static_cast<size_t>(b * kGemmDepth) + i];
                  block += row.integers[i] * weight;
                }
                sum += block * row.scale * column.scale;
                magnitude += std::abs(block * row.scale * column.scale);
              }
              // The sum of a block, the product of the scales and their product round once each;
              // each block is added once.
              const double bound = static_cast<double>(3 + blocks) * 0x1p-24 * magnitude;
              ASSERT_LE(std::abs(c.At(r, j) - sum), bound)
                  << target << " m " << m << " k " << k << " at " << r << ", " << j;
            }
          }
          for (int64_t r = 0; r < m; ++r) {
            for (int64_t j = w.rows; j < c.stride; ++j) ASSERT_EQ(c.At(r, j), before.At(r, j));
          }
        }
      }
      // Sums of integers are exact, so every target has the same bits.
      const Matrix<float> c = Product(a, packed);
      if (first.rows == 0) first = c;
      EXPECT_TRUE(SameBits(first, c)) << target;
    });
  }
}

TEST(GemmRoundedTest, TheSameBitsForAnyRowsPanelsAndThreads) {
  const RestoredThreads restored;
  const Matrix<float> a(100, 600, 0, 1), w(250, 600, 0, 2);
  for (const WeightType type : {WeightType::kBfloat16, WeightType::kInt8}) {
    ForEachTarget([&](const std::string& target) {
      const PackedMatrix<float> packed = Packed(w, type);
      const Matrix<float> whole = Product(a, packed);
      for (const int64_t rows : {1, 2, 3, 15}) {
        for (const int64_t panels : {int64_t{1}, int64_t{5}, packed.panels()}) {
          Matrix<float> c(a.rows, w.rows, 7, 3);
          for (int64_t r = 0; r < a.rows; r += rows) {
            for (int64_t p = 0; p < packed.panels(); p += panels) {
              Multiply<float>({.rows = std::min(rows, a.rows - r),
                               .a = &a.At(r, 0),
                               .a_stride = a.stride,
                               .c = &c.At(r, 0),
                               .c_stride = c.stride},
                              packed, p, std::min(p + panels, packed.panels()));
            }
          }
          ASSERT_TRUE(SameBits(whole, c)) << target << " " << rows << " rows, " << panels;
        }
      }
      EXPECT_TRUE(SameBits(whole, Product(a, Packed(w, type, LastFirst), false, LastFirst)));
      for (const int threads : {2, 3, 7}) {
        SetThreads(threads);
        EXPECT_TRUE(SameBits(whole, Product(a, Packed(w, type, {}), false, {}))) << target;
      }
    });
  }
}

TEST(GemmRoundedTest, RowsThatAreNotFiniteLeaveOthersUnchanged) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const Matrix<float> a(7, 300, 0, 1), w(40, 300, 0, 2);
  for (const WeightType type : {WeightType::kBfloat16, WeightType::kInt8}) {
    ForEachTarget([&](const std::string& target) {
      for (const int64_t m : {1, 2, 7}) {
        for (const float value : {kInfinity, -kInfinity, kNaN}) {
          // The first element, one beyond the last whole vector, and one of the last block.
          for (const int64_t at : {0, 255, 299}) {
            Matrix<float> bad = a, bad_w = w;
            bad.rows = m;
            const Matrix<float> good = Product(bad, Packed(w, type));
            bad.At(m - 1, at) = value;
            bad_w.At(11, at) = value;
            const Matrix<float> of_row = Product(bad, Packed(w, type));
            bad.At(m - 1, at) = a.At(m - 1, at);
            const Matrix<float> of_column = Product(bad, Packed(bad_w, type));
            for (int64_t r = 0; r < m; ++r) {
              for (int64_t j = 0; j < w.rows; ++j) {
                if (r == m - 1) {
                  ASSERT_FALSE(std::isfinite(of_row.At(r, j))) << target;
                } else {
                  ASSERT_EQ(of_row.At(r, j), good.At(r, j)) << target;
                }
                if (j == 11) {
                  ASSERT_FALSE(std::isfinite(of_column.At(r, j))) << target;
                } else {
                  ASSERT_EQ(of_column.At(r, j), good.At(r, j)) << target;
                }
              }
            }
          }
        }
      }
    });
  }
}

// Elements times a power of two give the product times that power, also where squares or scales
// would overflow or be subnormal.
TEST(GemmRoundedTest, Int8ScalesWithItsRows) {
  const Matrix<float> a(3, 100, 0, 1), w(40, 100, 0, 2);
  ForEachTarget([&](const std::string& target) {
    const Matrix<float> c = Product(a, Packed(w, WeightType::kInt8));
    for (const float power : {0x1p-80f, 0x1p-30f, 0x1p+30f, 0x1p+100f}) {
      Matrix<float> scaled = a;
      for (float& value : scaled.values) value *= power;
      const Matrix<float> of_scaled = Product(scaled, Packed(w, WeightType::kInt8));
      Matrix<float> scaled_w = w;
      for (float& value : scaled_w.values) value *= power;
      const Matrix<float> of_scaled_w = Product(a, Packed(scaled_w, WeightType::kInt8));
      for (int64_t r = 0; r < a.rows; ++r) {
        for (int64_t j = 0; j < w.rows; ++j) {
          ASSERT_EQ(of_scaled.At(r, j), c.At(r, j) * power) << target << " " << power;
          ASSERT_EQ(of_scaled_w.At(r, j), c.At(r, j) * power) << target << " " << power;
        }
      }
    }
    Matrix<float> tiny = a;
    for (float& value : tiny.values) value *= 0x1p-149f;
    const Matrix<float> of_tiny = Product(tiny, Packed(w, WeightType::kInt8));
    for (int64_t j = 0; j < w.rows; ++j) ASSERT_LE(std::abs(of_tiny.At(0, j)), 0x1p-100f);
  });
}

TEST(GemmRoundedTest, BytesAreThoseOfTheType) {
  const Matrix<float> w(64, 301, 0, 1);
  const int64_t elements = 64 * 301;
  EXPECT_EQ(Packed(w, WeightType::kFull).matrix_bytes(), 4 * elements);
  // An odd depth is padded.
  EXPECT_EQ(Packed(w, WeightType::kBfloat16).matrix_bytes(), 2 * 64 * 302);
  EXPECT_EQ(Packed(w, WeightType::kInt8).matrix_bytes(), 64 * 302 + 4 * 64);
}

}  // namespace
}  // namespace planish::internal
