// Quantized outputs of the norms of rows, against separate calls and the reference in double or
// long double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "planish/norm.h"
#include "src/norm/gate_testing.h"
#include "src/norm/quantize_testing.h"
#include "src/norm/recipe.h"
#include "src/norm/rows/rows.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using tests::ApplyQuantized;
using tests::Describe;
using tests::ExpectQuantizes;
using tests::ForEachTypes;
using tests::GatedProblem;
using tests::GatedResult;
using tests::QuantizedForward;
using tests::QuantizedResult;

constexpr std::pair<int64_t, int64_t> kShapes[] = {
    {300, 70}, {900, 16}, {3, 9000}, {20, 257}, {2, (1 << 17) + 1}};

/// Calls f(problem) for every norm, without a gate and, if the norm can have one, with each form.
/// Long rows, whose tests are slow, are those of LayerNorm.
template <class T, class P, class F>
void ForEachForm(int64_t rows, int64_t cols, const F& f) {
  for (const Norm norm : tests::kNorms) {
    if (cols >= internal::kLongRowColumns && norm != Norm::kLayer) continue;
    GatedProblem<T, P> p(norm, rows, cols, false);
    if (!tests::IsAffine(norm)) p.gain.clear(), p.bias.clear();
    auto plain = p;
    plain.z.clear();
    f(plain);
    if (!tests::IsAffine(norm)) continue;
    f(p);
    p.before = true;
    f(p);
  }
}

// --- The kernels ---

TEST(QuantizeTest, EveryWidthAgreesWithTheReference) {
  ForEachTypes([]<class T, class P>() {
    for (const int64_t cols : {2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 257, 1025, 4097}) {
      for (const int64_t rows : {1, 3, 21}) {
        if (cols > 300 && rows > 1) continue;
        ForEachForm<T, P>(rows, cols, [](const GatedProblem<T, P>& p) {
          tests::ForEachTarget([&](const std::string& target) {
            SCOPED_TRACE(target);
            ExpectQuantizes(p, ApplyQuantized(p));
          });
        });
      }
    }
  });
}

TEST(QuantizeTest, ManyAndLongRowsAgreeWithTheReference) {
  ForEachTypes([]<class T, class P>() {
    for (const auto& [rows, cols] : kShapes) {
      ForEachForm<T, P>(rows, cols,
                        [](const GatedProblem<T, P>& p) { ExpectQuantizes(p, ApplyQuantized(p)); });
    }
  });
}

/// A problem of T in Compute<T>, which represents all its values.
template <class T, class P>
GatedProblem<Compute<T>, Compute<T>> Widened(const GatedProblem<T, P>& p) {
  GatedProblem<Compute<T>, Compute<T>> wide(p.norm, p.rows, p.cols, p.before);
  const auto convert = [](const auto& from, auto& to) {
    to.clear();
    for (const auto value : from) to.push_back(static_cast<Compute<T>>(tests::ToDouble(value)));
  };
  convert(p.x, wide.x), convert(p.z, wide.z);
  convert(p.gain, wide.gain), convert(p.bias, wide.bias);
  return wide;
}

// The definition, bit for bit: the y that a call in Compute<T> writes, quantized. Statistics are
// those of that call.
TEST(QuantizeTest, HasTheBitsOfTheDefinition) {
  ForEachTypes([]<class T, class P>() {
    using C = Compute<T>;
    for (const auto& [rows, cols] : kShapes) {
      ForEachForm<T, P>(rows, cols, [](const GatedProblem<T, P>& p) {
        const auto wide = Widened(p);
        GatedResult<C, C> y(wide);
        NormForward<C, C>(p.norm, GatedForward(wide, y), wide.Options());
        const auto out = ApplyQuantized(p);
        EXPECT_TRUE(tests::SameBits(out.mean, y.mean)) << Describe(p);
        EXPECT_TRUE(tests::SameBits(out.rstd, y.rstd)) << Describe(p);
        const auto n = static_cast<size_t>(p.cols);
        for (size_t r = 0; r < static_cast<size_t>(p.rows); ++r) {
          C max = 0;
          for (size_t c = 0; c < n; ++c) max = std::max(max, std::abs(y.y[r * n + c]));
          ASSERT_EQ(out.row_scale[r], max / 127) << Describe(p);
          for (size_t c = 0; c < n; ++c) {
            ASSERT_EQ(out.quantized[r * n + c], std::nearbyint(y.y[r * n + c] * (127 / max)))
                << Describe(p);
          }
        }
      });
    }
  });
}

TEST(QuantizeTest, ThreadsChangeNoBits) {
  ForEachTypes([]<class T, class P>() {
    for (const auto& [rows, cols] : kShapes) {
      ForEachForm<T, P>(rows, cols, [](const GatedProblem<T, P>& p) {
        const auto expected = ApplyQuantized(p, tests::OnThreads(1));
        EXPECT_EQ(ApplyQuantized(p, tests::OnThreads(2)), expected) << Describe(p);
        EXPECT_EQ(ApplyQuantized(p, tests::OnThreads(7)), expected) << Describe(p);
        const tests::NtStores nt_stores;
        EXPECT_EQ(ApplyQuantized(p, tests::OnThreads(3)), expected) << Describe(p);
      });
    }
  });
}

// Both outputs, y in place of x: the y that a call in Compute<T> writes, rounded. Calls without a
// gate sum 16-bit rows in another order, so their y can differ in the last bit.
TEST(QuantizeTest, AlsoWritesY) {
  ForEachTypes([]<class T, class P>() {
    for (const auto& [rows, cols] : kShapes) {
      ForEachForm<T, P>(rows, cols, [](GatedProblem<T, P> p) {
        const auto expected = ApplyQuantized(p);
        const auto wide = Widened(p);
        GatedResult<Compute<T>, Compute<T>> y(wide);
        NormForward<Compute<T>, Compute<T>>(p.norm, GatedForward(wide, y), wide.Options());
        std::vector<T> rounded;
        for (const auto value : y.y) rounded.push_back(tests::FromDouble<T>(value));
        QuantizedResult<T, P> out(p);
        auto args = QuantizedForward(p, out);
        args.y = p.x.data();
        NormForward<T, P>(p.norm, args, p.Options(tests::OnThreads(2)));
        EXPECT_EQ(out, expected) << Describe(p);
        EXPECT_TRUE(tests::SameBits(p.x, rounded)) << Describe(p);
      });
    }
  });
}

TEST(QuantizeTest, Strides) {
  ForEachTypes([]<class T, class P>() {
    for (const auto& [rows, cols] : kShapes) {
      ForEachForm<T, P>(rows, cols, [&](const GatedProblem<T, P>& p) {
        const auto expected = ApplyQuantized(p);
        const int64_t stride = p.cols + 3;
        const auto spread = [&](const auto& values) {
          auto wide = values;
          wide.assign(static_cast<size_t>(p.rows * stride), {});
          for (int64_t r = 0; r < p.rows && !values.empty(); ++r) {
            std::copy_n(values.begin() + r * p.cols, p.cols, wide.begin() + r * stride);
          }
          return wide;
        };
        const auto x = spread(p.x), z = spread(p.z);
        auto q = spread(expected.quantized);
        const auto wanted = q;
        for (int64_t r = 0; r < p.rows; ++r) std::fill_n(q.begin() + r * stride, p.cols, int8_t{});
        QuantizedResult<T, P> out(p);
        auto args = QuantizedForward(p, out);
        args.x = x.data(), args.quantized = q.data();
        args.x_stride = args.quantized_stride = stride;
        if (args.gate) args.gate = z.data(), args.gate_stride = stride;
        NormForward<T, P>(p.norm, args, p.Options());
        EXPECT_EQ(q, wanted) << Describe(p);
        EXPECT_EQ(out.row_scale, expected.row_scale) << Describe(p);
      });
    }
  });
}

TEST(QuantizeTest, SetsAreSeparateCalls) {
  ForEachTypes([]<class T, class P>() {
    for (const bool interleaved : {false, true}) {
      const int64_t rows = 12, cols = 33, sets = 3, n = rows / sets;
      GatedProblem<T, P> p(Norm::kLayer, rows, cols, false);
      p.SetSets(sets, interleaved ? 1 : n);
      const auto out = ApplyQuantized(p);
      for (int64_t set = 0; set < sets; ++set) {
        GatedProblem<T, P> one(p.norm, n, cols, false);
        const auto gather = [&](const auto& from) {
          auto to = from;
          to.clear();
          for (int64_t r = 0; r < n; ++r) {
            const auto row = from.begin() + (interleaved ? r * sets + set : set * n + r) * cols;
            to.insert(to.end(), row, row + cols);
          }
          return to;
        };
        one.x = gather(p.x), one.z = gather(p.z);
        one.gain.assign(p.gain.begin() + set * cols, p.gain.begin() + (set + 1) * cols);
        one.bias.assign(p.bias.begin() + set * cols, p.bias.begin() + (set + 1) * cols);
        const auto expected = ApplyQuantized(one);
        EXPECT_EQ(gather(out.quantized), expected.quantized);
        EXPECT_TRUE(std::equal(expected.row_scale.begin(), expected.row_scale.end(),
                               out.row_scale.begin() + set * n));
      }
    }
  });
}

TEST(QuantizeTest, ResidualIsAddedBefore) {
  ForEachTypes([]<class T, class P>() {
    for (const auto& [rows, cols] : kShapes) {
      ForEachForm<T, P>(rows, cols, [](GatedProblem<T, P> p) {
        QuantizedResult<T, P> out(p);
        auto args = QuantizedForward(p, out);
        args.residual = p.dy.data();
        args.sum = out.dx.data();
        NormForward<T, P>(p.norm, args, p.Options());
        p.x = out.dx;
        const auto expected = ApplyQuantized(p);
        EXPECT_EQ(out.quantized, expected.quantized) << Describe(p);
        EXPECT_EQ(out.row_scale, expected.row_scale) << Describe(p);
      });
    }
  });
}

// With the rounding before the product with the gain, y is computed from the rounded xhat, which a
// call without gain writes.
TEST(QuantizeTest, CastRoundsBeforeTheProduct) {
  ForEachTypes([]<class T, class P>() {
    using C = Compute<T>;
    if (sizeof(T) != 2) return;
    for (const Norm norm : tests::kAffineNorms) {
      for (const bool gated : {false, true}) {
        GatedProblem<T, P> p(norm, 20, 300, false);
        p.cast = true;
        auto plain = p;
        plain.gain.clear(), plain.bias.clear(), plain.z.clear();
        plain.cast = false;
        GatedResult<T, P> xhat(plain);
        NormForward<T, P>(norm, GatedForward(plain, xhat), p.Options());
        if (!gated) p.z.clear();
        const auto out = ApplyQuantized(p);
        for (size_t r = 0; r < 20; ++r) {
          std::vector<double> y;
          for (size_t c = 0; c < 300; ++c) {
            const double value = tests::ToDouble(xhat.y[r * 300 + c]) * tests::ToDouble(p.gain[c]) +
                                 tests::ToDouble(p.bias[c]);
            const double rounded = tests::ToDouble(tests::FromDouble<T>(static_cast<C>(value)));
            y.push_back(gated ? rounded * tests::Silu(tests::ToDouble(p.z[r * 300 + c])) : value);
          }
          // Without a gate y has a few roundings of float. With one, a product whose rounding to T
          // is a tie up to them can be one unit of T off.
          const double u = gated ? 2 * tests::UnitRoundoff<T>() : 4 * tests::UnitRoundoff<C>();
          tests::ExpectQuantizesRow(y, u, out.quantized.data() + r * 300,
                                    static_cast<double>(out.row_scale[r]));
        }
      }
    }
  });
}

// --- Special values ---

TEST(QuantizeTest, SpecialRows) {
  ForEachTypes([]<class T, class P>() {
    tests::ForEachTarget([](const std::string& target) {
      SCOPED_TRACE(target);
      for (const int64_t cols : {5, 40, (1 << 17) + 1}) {
        GatedProblem<T, P> p(Norm::kLayer, 5, cols, false);
        p.z.clear(), p.bias.clear();
        const auto at = [&](int64_t r, int64_t c) { return static_cast<size_t>(r * cols + c); };
        p.x[at(0, cols - 1)] = tests::FromDouble<T>(NAN);
        p.x[at(1, 0)] = tests::FromDouble<T>(std::numeric_limits<double>::infinity());
        std::fill_n(p.x.begin() + 2 * cols, cols, tests::FromDouble<T>(3));  // constant
        const auto out = ApplyQuantized(p);
        const auto is_zero = [&](int64_t r) {
          return std::all_of(out.quantized.begin() + r * cols,
                             out.quantized.begin() + (r + 1) * cols,
                             [](int8_t q) { return q == 0; });
        };
        EXPECT_TRUE(std::isnan(out.row_scale[0]) && is_zero(0));
        EXPECT_TRUE(std::isnan(out.row_scale[1]) && is_zero(1));
        EXPECT_TRUE(out.row_scale[2] == 0 && is_zero(2));
        EXPECT_TRUE(out.row_scale[3] > 0 && !is_zero(3));
      }
    });
  });
}

// An element that is not finite, although its row's statistics are; and values near the limits of
// the type.
TEST(QuantizeTest, SpecialGains) {
  const auto check = []<class T>(T) {
    using Limits = std::numeric_limits<T>;
    tests::ForEachTarget([](const std::string& target) {
      SCOPED_TRACE(target);
      for (const int64_t cols : {1, 3, 16, 37}) {
        std::vector<T> x(static_cast<size_t>(cols), T{1}), gain(x);
        std::vector<int8_t> q(static_cast<size_t>(cols), 99);
        T scale = 9;
        const auto quantize = [&](T last) {
          gain.back() = last;
          NormForward<T>(Norm::kRms,
                         {.rows = 1,
                          .cols = cols,
                          .x = x.data(),
                          .gain = gain.data(),
                          .quantized = q.data(),
                          .row_scale = &scale},
                         {.eps = 0});
        };
        for (const T bad : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
          quantize(bad);
          EXPECT_TRUE(std::isnan(scale));
          EXPECT_TRUE(std::all_of(q.begin(), q.end(), [](int8_t v) { return v == 0; }));
        }
        quantize(-Limits::max());
        EXPECT_EQ(scale, Limits::max() / 127);
        EXPECT_EQ(q.back(), -127);
        EXPECT_TRUE(std::all_of(q.begin(), q.end() - 1, [](int8_t v) { return v == 0; }));
        std::fill(gain.begin(), gain.end(), -128 * Limits::min());
        quantize(128 * Limits::min());
        EXPECT_EQ(scale, 128 * Limits::min() / 127);
        EXPECT_EQ(q.back(), 127);
        EXPECT_TRUE(std::all_of(q.begin(), q.end() - 1, [](int8_t v) { return v == -127; }));
        std::fill(gain.begin(), gain.end(), 100 * Limits::min());
        quantize(Limits::denorm_min());
        if (cols == 1) continue;
        EXPECT_EQ(scale, 0);
        EXPECT_TRUE(std::all_of(q.begin(), q.end(), [](int8_t v) { return v == 0; }));
      }
    });
  };
  check(1.0f);
  check(1.0);
}

TEST(QuantizeTest, NoElements) {
  float scales[3] = {1, 2, 3};
  int8_t q = 5;
  NormForward<float>(Norm::kLayer,
                     {.rows = 3, .cols = 0, .quantized = nullptr, .row_scale = scales});
  for (const float scale : scales) EXPECT_TRUE(std::isnan(scale));
  NormForward<float>(Norm::kLayer, {.rows = 0, .cols = 3, .quantized = &q, .row_scale = scales});
  EXPECT_EQ(q, 5);
}

TEST(QuantizeTest, Errors) {
  const GatedProblem<float, float> p(Norm::kLayer, 2, 3, false);
  QuantizedResult<float, float> out(p);
  const auto error = [&](const auto& change) {
    auto args = QuantizedForward(p, out);
    change(args);
    return tests::ErrorOf([&] { NormForward<float>(p.norm, args); });
  };
  EXPECT_EQ(error([](auto&) {}), "");
  EXPECT_EQ(error([&](auto& a) { a.quantized = nullptr, a.row_scale = nullptr; }),
            "[NormForward] y must point to 24 bytes, got null");
  EXPECT_EQ(error([&](auto& a) { a.row_scale = nullptr; }),
            "[NormForward] row_scale must point to 8 bytes, got null");
  EXPECT_EQ(error([&](auto& a) { a.quantized = nullptr, a.y = out.y.data(); }),
            "[NormForward] row_scale must be null without quantized, got an address");
  EXPECT_EQ(error([](auto& a) { a.quantized_stride = 2; }),
            "[NormForward] quantized_stride must be 0 or at least cols (3), got 2");
  EXPECT_NE(
      error([](auto& a) { a.quantized = reinterpret_cast<int8_t*>(a.row_scale); }).find("overlap"),
      std::string::npos);
}

}  // namespace
}  // namespace planish
