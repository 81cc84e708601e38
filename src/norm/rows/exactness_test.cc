// Documented accuracy for any row: far from 0, of any scale, constant, of one element, with an
// outlier, sorted, with NaN or infinity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "planish/norm.h"
#include "src/norm/bounds.h"
#include "src/norm/reference.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using ::testing::Each;
using ::testing::IsNan;
using tests::Growth;
using tests::Problem;

// Documented accuracy for float (docs/accuracy.md). xhat is within 5e-7 * max(1, |xhat|), eight
// roundings of 2^-24, of the exact normalization of the given values. For rows of more than 4096
// elements the limit is twice that. dx is within 1e-5 of its largest term, rstd * max(|g|).
constexpr double kPromisedDx = 1e-5;

/// Returns the promised error of xhat for a row that is summed about a value with mean(d^2) =
/// `spread` times the variance. docs/accuracy.md derives it.
double PromisedXhat(int64_t cols, double spread) {
  constexpr double kU = 0x1p-24;
  const double near = cols <= 4096 ? 5e-7 : 1e-6;
  const double sums = (near - 6 * kU) / 1.5;
  const double mean = (sums + kU) * std::sqrt(spread);
  const double variance = spread * (sums + 2 * kU) + 2 * std::sqrt(spread - 1) * mean;
  return mean + variance / 2 + 4 * kU;
}

/// Random rows are summed about a value near their mean. For other rows that value can be as far
/// from the mean as SumsAreAccurate accepts.
constexpr double kNear = 1, kAccepted = 4;

/// Largest errors of one call, relative to the documented ones.
struct ErrorRatios {
  double xhat = 0, dx = 0;
};

struct ExactRows {
  ExactRows(const Problem<float>& p, double spread)
      : cols(p.cols), promised_xhat(PromisedXhat(p.cols, spread)) {
    const internal::Recipe recipe = internal::RecipeOf(Norm::kLayerSimple);
    const auto n = static_cast<size_t>(cols);
    for (size_t begin = 0; begin < p.x.size(); begin += n) {
      std::vector<double> x(n), dy(n), gain(n, 1);
      double most = 0;
      for (size_t c = 0; c < n; ++c) {
        x[c] = static_cast<double>(p.x[begin + c]) - static_cast<double>(p.x[begin]);
        dy[c] = static_cast<double>(p.dy[begin + c]);
        most = std::max(most, std::abs(dy[c]));
      }
      const double mean = internal::ReferenceMean(recipe, x);
      const double rstd = internal::ReferenceRstd(recipe, x, mean, p.eps);
      for (double& value : x) value = (value - mean) * rstd;
      const auto gradient = internal::ReferenceGradient(recipe, {p.eps}, x, rstd, gain, dy);
      xhat.insert(xhat.end(), x.begin(), x.end());
      dx.insert(dx.end(), gradient.begin(), gradient.end());
      largest_term.push_back(rstd * most);
    }
  }

  ErrorRatios Compare(const tests::Result<float>& out) const {
    ErrorRatios worst;
    const auto add = [](double& most, double value) {
      if (!(value <= most)) most = value >= 0 ? value : INFINITY;  // NaN counts as infinite
    };
    for (size_t i = 0; i < xhat.size(); ++i) {
      const double error = std::abs(static_cast<double>(out.y[i]) - xhat[i]);
      add(worst.xhat, error / promised_xhat / std::max(1.0, std::abs(xhat[i])));
      const double dx_error = std::abs(static_cast<double>(out.dx[i]) - dx[i]);
      add(worst.dx, dx_error / kPromisedDx / largest_term[i / static_cast<size_t>(cols)]);
    }
    return worst;
  }

  int64_t cols;
  double promised_xhat;
  std::vector<double> xhat, dx, largest_term;
};

void ExpectKeepsPromise(const Problem<float>& p, double spread = kAccepted) {
  const ExactRows exact(p, spread);
  tests::ForEachTarget([&](const std::string& target) {
    const ErrorRatios worst = exact.Compare(tests::Apply(p));
    EXPECT_LE(worst.xhat, 1) << p.rows << " x " << p.cols << " on " << target;
    EXPECT_LE(worst.dx, 1) << p.rows << " x " << p.cols << " on " << target;
  });
}

class AnyMeanTest : public ::testing::TestWithParam<double> {};

// Hundreds of rows of every width.
TEST_P(AnyMeanTest, FloatIsExact) {
  std::mt19937 random(7);
  const std::vector<double> noise = tests::Normal<double>(1 << 20, random);
  for (const int64_t cols : tests::Widths()) {
    Problem<float> p(Norm::kLayerSimple, 0, cols);
    p.rows = cols <= 1100 ? 200 : cols <= 5000 ? 40 : 4;
    for (int64_t i = 0; i < p.rows * cols; ++i) {
      const double x = noise[static_cast<size_t>(i * 5 + cols) % noise.size()];
      const double dy = noise[static_cast<size_t>(i * 3 + 1) % noise.size()];
      p.x.push_back(static_cast<float>(GetParam() + x));
      p.dy.push_back(static_cast<float>(dy));
    }
    ExpectKeepsPromise(p, kNear);
  }
}

INSTANTIATE_TEST_SUITE_P(Means, AnyMeanTest, ::testing::Values(0.0, 1e2, -1e4, 1e6, 1e7));

// Tests double, which has more digits, and the statistics.
TEST(ExactnessTest, DoubleAtAnyMean) {
  for (const double mean : {0.0, 1e4, 1e7, -1e15}) {
    for (const int64_t cols : {2, 3, 33, 1000, 4097}) {
      const Problem<double> p(Norm::kLayer, 20, cols, mean, 10);
      tests::ForEachTargetsErrors(p, Growth::kRandom, [&](const auto& target, const auto& errors) {
        EXPECT_EQ(tests::Beyond(errors), "") << cols << " at " << mean << " on " << target;
      });
    }
  }
}

// --- Adversarial rows ---

Problem<float> OneRow(int64_t cols) {
  Problem<float> p(Norm::kLayerSimple, 1, cols);
  return p;
}

constexpr int64_t kHardWidths[] = {8, 33, 64, 100, 1000, 4096, 4097, 65537};

// Kernels take the shift from elements of the row. In the hard rows these are far from all others.
TEST(ExactnessTest, Outliers) {
  for (const int64_t cols : kHardWidths) {
    for (const float outlier : {1e2f, -1e4f, 1e8f, 1e20f, -3e38f}) {
      for (const int64_t at : {int64_t{0}, cols / 2, cols - 1}) {
        SCOPED_TRACE(::testing::Message() << outlier << " at " << at);
        Problem<float> p = OneRow(cols);
        p.x[static_cast<size_t>(at)] = outlier;
        ExpectKeepsPromise(p);
      }
    }
  }
}

// Whole vectors far from the mean, for every vector length.
TEST(ExactnessTest, FirstElementsFarFromTheMean) {
  for (const int64_t cols : kHardWidths) {
    for (const int64_t first : {1, 2, 4, 8, 16, 32}) {
      if (first > cols / 2) continue;
      for (const float off : {10.f, 1e3f, -1e7f}) {
        SCOPED_TRACE(::testing::Message() << first << " off by " << off);
        Problem<float> p = OneRow(cols);
        for (int64_t c = 0; c < first; ++c) {
          p.x[static_cast<size_t>(c)] += off;
          p.x[static_cast<size_t>((cols - first) / 2 + c)] += off;
        }
        ExpectKeepsPromise(p);
      }
    }
  }
}

TEST(ExactnessTest, RampsAndSortedRows) {
  for (const int64_t cols : kHardWidths) {
    SCOPED_TRACE(cols);
    for (const float step : {1.f, -0.1f, 1e-3f}) {
      for (const float start : {0.f, 1e3f, -1e6f}) {
        Problem<float> p = OneRow(cols);
        for (int64_t c = 0; c < cols; ++c) {
          p.x[static_cast<size_t>(c)] = start + step * static_cast<float>(c);
        }
        ExpectKeepsPromise(p);
      }
    }
    Problem<float> p = OneRow(cols);
    std::ranges::sort(p.x);
    ExpectKeepsPromise(p);
    std::ranges::reverse(p.x);
    ExpectKeepsPromise(p);
  }
}

// Two values: a step, alternating, and in blocks.
TEST(ExactnessTest, TwoValues) {
  for (const int64_t cols : kHardWidths) {
    for (const float value : {1.f, 1e-3f, 12345.678f}) {
      SCOPED_TRACE(value);
      Problem<float> p = OneRow(cols);
      for (int64_t c = 0; c < cols; ++c) {
        p.x[static_cast<size_t>(c)] = c < cols / 3 ? value : -value * 0.7f;
      }
      ExpectKeepsPromise(p);
      for (int64_t c = 0; c < cols; ++c) {
        p.x[static_cast<size_t>(c)] = 1e5f + (c % 2 ? value : 0);
      }
      ExpectKeepsPromise(p);
      // Where kernels look for a value near the mean, all elements are far from it.
      for (int64_t c = 0; c < cols; ++c) {
        const bool sampled = c % ((cols + 1) / 2) < cols / 5;
        p.x[static_cast<size_t>(c)] = sampled ? value : 0;
      }
      ExpectKeepsPromise(p);
    }
  }
}

// --- Every type ---

template <class T>
class ExactnessOfTest : public ::testing::Test {};
using ElementTypes = ::testing::Types<float, double, bfloat16, float16>;
TYPED_TEST_SUITE(ExactnessOfTest, ElementTypes);

TYPED_TEST(ExactnessOfTest, AnyScale) {
  using T = TypeParam;
  std::vector<double> scales = {1e-30, 1e-20, 1e-10, 1e10, 1e20, 1e30};
  if (std::is_same_v<T, float16>) scales = {1e-3, 1e-1, 1e2, 1e4};
  if (std::is_same_v<T, double>) scales.insert(scales.end(), {1e-150, 1e-100, 1e100, 1e150});
  for (const Norm norm : tests::kNorms) {
    for (const double scale : scales) {
      for (const double eps : {0.0, 1e-5}) {
        for (const int64_t cols : {3, 20, 100}) {
          Problem<T> p(norm, 3, cols, 3 * scale, scale);
          p.eps = eps;
          tests::ForEachTargetsErrors(p, tests::GrowthOf<T>(),
                                      [&](const auto& target, const auto& errors) {
                                        EXPECT_EQ(tests::Beyond(errors), "")
                                            << tests::NameOf(norm) << ", " << cols << " at scale "
                                            << scale << ", eps " << eps << " on " << target;
                                      });
        }
      }
    }
  }
}

// The largest values of the type, or half of them if their differences would overflow. Their
// squares exceed float.
TYPED_TEST(ExactnessOfTest, LargestValues) {
  using T = TypeParam;
  const double most = std::is_same_v<T, float16>    ? 65504
                      : std::is_same_v<T, bfloat16> ? 0x1.fep126
                      : std::is_same_v<T, float>    ? 0x1.fffffep126
                                                    : 1e150;
  for (const int64_t cols : {2, 7, 64, 1000}) {
    Problem<T> p(Norm::kLayerSimple, 4, cols);
    for (int64_t c = 0; c < cols; ++c) {
      const auto put = [&](int64_t r, double value) {
        p.x[static_cast<size_t>(r * cols + c)] = tests::FromDouble<T>(value);
      };
      put(0, c % 2 ? most : -most);
      put(1, c == 0 ? most : 1);
      put(2, c == cols - 1 ? -most : most);
      put(3, c % 3 ? most : most / 2);
    }
    tests::ForEachTargetsErrors(p, Growth::kWorst, [&](const auto& target, const auto& errors) {
      EXPECT_EQ(tests::Beyond(errors), "") << cols << " on " << target;
    });
  }
}

TYPED_TEST(ExactnessOfTest, ConstantRowGivesBias) {
  using T = TypeParam;
  for (double constant : {0.0, 1.0, 1234.567, -60000.0, -1e6, 16777217.0, 1e30, 1e-30, -3e38}) {
    if (std::is_same_v<T, float16> && std::abs(constant) > 65504) constant = 0.1;
    const T value = tests::FromDouble<T>(constant);
    for (const int64_t cols : {1, 2, 3, 7, 8, 16, 33, 64, 129, 1000, 4097, (1 << 17) + 1}) {
      Problem<T> p(Norm::kLayer, cols > 5000 ? 1 : 9, cols);
      std::ranges::fill(p.x, value);
      tests::ForEachTarget([&](const std::string& target) {
        SCOPED_TRACE(::testing::Message() << constant << ", " << cols << " on " << target);
        const auto out = tests::Apply(p);
        for (size_t i = 0; i < out.y.size(); ++i) {
          ASSERT_EQ(tests::ToDouble(out.y[i]),
                    tests::ToDouble(p.bias[i % static_cast<size_t>(cols)]));
        }
        for (const T& dgain : out.dgain) ASSERT_EQ(tests::ToDouble(dgain), 0);
        for (const auto mean : out.mean) ASSERT_EQ(mean, tests::ToDouble(value));
        for (const auto mean_lo : out.mean_lo) ASSERT_EQ(mean_lo, 0);
      });
    }
  }
}

TYPED_TEST(ExactnessOfTest, ConstantRowWithoutEpsIsNan) {
  tests::ForEachTarget([](const std::string& target) {
    for (const int64_t cols : {1, 5, 64}) {
      Problem<TypeParam> p(Norm::kLayer, 1, cols);
      p.eps = 0;
      std::ranges::fill(p.x, tests::FromDouble<TypeParam>(2));
      for (const TypeParam y : tests::Apply(p).y) {
        EXPECT_TRUE(std::isnan(tests::ToDouble(y))) << cols << " on " << target;
      }
    }
  });
}

TYPED_TEST(ExactnessOfTest, OneColumnHasNoGradient) {
  tests::ForEachTarget([](const std::string& target) {
    SCOPED_TRACE(target);
    for (const int64_t rows : {1, 5, 70}) {
      const Problem<TypeParam> p(Norm::kLayer, rows, 1, 1e4);
      const auto out = tests::Apply(p);
      for (const TypeParam y : out.y) EXPECT_EQ(tests::ToDouble(y), tests::ToDouble(p.bias[0]));
      for (const TypeParam dx : out.dx) EXPECT_EQ(tests::ToDouble(dx), 0);
      EXPECT_EQ(tests::ToDouble(out.dgain[0]), 0);
    }
  });
}

TYPED_TEST(ExactnessOfTest, NanAndInfinityStayInTheirRow) {
  using T = TypeParam;
  const T inf = tests::FromDouble<T>(std::numeric_limits<double>::infinity());
  const T minus = tests::FromDouble<T>(-std::numeric_limits<double>::infinity());
  const T nan = tests::FromDouble<T>(std::numeric_limits<double>::quiet_NaN());
  tests::ForEachTarget([&](const std::string& target) {
    for (const Norm norm : {Norm::kLayer, Norm::kAda, Norm::kRms}) {
      for (const int64_t cols : {2, 3, 9, 17, 40, 100, 1000}) {
        const Problem<T> clean(norm, 21, cols);
        Problem<T> p = clean;
        const auto put = [&](int64_t r, int64_t c, T value) {
          p.x[static_cast<size_t>(r * cols + c)] = value;
        };
        put(1, 0, nan);
        put(3, cols - 1, nan);
        put(4, 0, inf);
        put(5, cols - 1, minus);
        put(7, 0, inf);
        put(7, 1, minus);
        put(20, cols / 2, nan);
        const auto expected = tests::Apply(clean), out = tests::Apply(p);
        for (int64_t r = 0; r < p.rows; ++r) {
          SCOPED_TRACE(::testing::Message() << tests::NameOf(norm) << ", row " << r << " of "
                                            << cols << " on " << target);
          const bool bad = r == 1 || r == 3 || r == 4 || r == 5 || r == 7 || r == 20;
          EXPECT_EQ(std::isnan(out.rstd[static_cast<size_t>(r)]), bad);
          for (int64_t i = r * cols; i < (r + 1) * cols; ++i) {
            const auto at = static_cast<size_t>(i);
            if (bad) {
              ASSERT_TRUE(std::isnan(tests::ToDouble(out.y[at])));
              ASSERT_TRUE(std::isnan(tests::ToDouble(out.dx[at])));
            } else {
              ASSERT_EQ(std::memcmp(&out.y[at], &expected.y[at], sizeof(T)), 0);
              ASSERT_EQ(std::memcmp(&out.dx[at], &expected.dx[at], sizeof(T)), 0);
            }
          }
        }
        if (!tests::IsAffine(norm)) continue;
        // dgain sums over all rows, dbias does not read x.
        for (const T dgain : out.dgain) EXPECT_TRUE(std::isnan(tests::ToDouble(dgain)));
        EXPECT_TRUE(tests::SameBits(out.dbias, expected.dbias));
      }
    }
  });
}

// An infinite or NaN gradient affects only its row, and its columns of dgain and dbias.
TYPED_TEST(ExactnessOfTest, BadGradientsStayInTheirRow) {
  using T = TypeParam;
  tests::ForEachTarget([](const std::string& target) {
    for (const int64_t cols : {3, 20, 100}) {
      const Problem<T> clean(Norm::kLayer, 9, cols);
      Problem<T> p = clean;
      p.dy[static_cast<size_t>(4 * cols + 1)] = tests::FromDouble<T>(INFINITY);
      const auto expected = tests::Apply(clean), out = tests::Apply(p);
      for (int64_t i = 0; i < 9 * cols; ++i) {
        const auto at = static_cast<size_t>(i);
        SCOPED_TRACE(::testing::Message() << i << " of " << cols << " on " << target);
        if (i / cols == 4) {
          ASSERT_FALSE(std::isfinite(tests::ToDouble(out.dx[at])));
        } else {
          ASSERT_EQ(std::memcmp(&out.dx[at], &expected.dx[at], sizeof(T)), 0);
        }
      }
      for (size_t c = 0; c < static_cast<size_t>(cols); ++c) {
        EXPECT_EQ(std::isfinite(tests::ToDouble(out.dbias[c])), c != 1);
        EXPECT_EQ(std::isfinite(tests::ToDouble(out.dgain[c])), c != 1);
      }
    }
  });
}

// One bad element of x and one of dy, in different rows, in the kernels for long rows and
// non-temporal stores.
TYPED_TEST(ExactnessOfTest, BadRowsAffectNoOtherRowInAnyKernel) {
  using T = TypeParam;
  const T nan = tests::FromDouble<T>(std::numeric_limits<double>::quiet_NaN());
  const T inf = tests::FromDouble<T>(-std::numeric_limits<double>::infinity());
  for (const Norm norm : tests::kNorms) {
    for (const auto& shape : {std::pair<int64_t, int64_t>{11, 8},
                              {11, 79},
                              {11, 639},
                              {11, 640},
                              {4, 4097},
                              {4, (1 << 17) + 3}}) {
      const int64_t rows = shape.first, cols = shape.second;
      const Problem<T> clean(norm, rows, cols);
      for (const T bad : {nan, inf}) {
        Problem<T> p = clean;
        p.x[static_cast<size_t>(cols + cols / 2)] = bad;          // row 1
        p.dy[static_cast<size_t>(rows * cols - cols / 3)] = bad;  // last row
        tests::ForEachTarget([&](const std::string& target) {
          const auto expected = tests::Apply(clean);
          const auto expect = [&](const auto& out) {
            for (int64_t i = 0; i < rows * cols; ++i) {
              const auto at = static_cast<size_t>(i);
              const bool in_x = i / cols == 1, in_dy = i / cols == rows - 1;
              ASSERT_EQ(tests::IsNan(out.y[at]), in_x);
              if (in_x) {
                ASSERT_TRUE(tests::IsNan(out.dx[at]));
                continue;
              }
              ASSERT_EQ(std::memcmp(&out.y[at], &expected.y[at], sizeof(T)), 0);
              if (!in_dy) {
                ASSERT_EQ(std::memcmp(&out.dx[at], &expected.dx[at], sizeof(T)), 0);
              }
            }
            const auto at = static_cast<size_t>(rows * cols - cols / 3);
            EXPECT_FALSE(std::isfinite(tests::ToDouble(out.dx[at])));
          };
          SCOPED_TRACE(::testing::Message()
                       << tests::NameOf(norm) << ", " << rows << " x " << cols << " on " << target);
          expect(tests::Apply(p));
          SCOPED_TRACE("non-temporal stores");
          const tests::NtStores nt_stores;
          expect(tests::Apply(p));
        });
      }
    }
  }
}

// Rows whose squares overflow double give NaN.
TEST(ExactnessTest, DoubleOutOfRangeIsNan) {
  tests::ForEachTarget([](const std::string& target) {
    Problem<double> p(Norm::kLayerSimple, 2, 10);
    for (size_t c = 0; c < 10; ++c)
      p.x[c] = c % 2 ? 1.7e308 : -1.7e308;  // their difference overflows, too
    const auto out = tests::Apply(p);
    for (size_t c = 0; c < 10; ++c) {
      EXPECT_TRUE(std::isnan(out.y[c]) || std::abs(std::abs(out.y[c]) - 1) < 1e-12) << target;
      EXPECT_TRUE(std::isfinite(out.y[10 + c])) << target;
    }
  });
}

}  // namespace
}  // namespace planish
