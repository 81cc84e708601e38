#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numbers>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "planish/target.h"
#include "src/base/simd/math_arrays.h"

namespace planish::internal {
namespace {

// The reference needs 64 bits or more: its own error is then below a thousandth of the tolerance.
static_assert(std::numeric_limits<long double>::digits >= 64);

long double TrueSigmoid(long double x) {
  const long double e = std::exp(-std::abs(x));
  return (x < 0 ? e : 1) / (1 + e);
}

long double TrueSoftplus(long double x) {
  return std::max(x, 0.0L) + std::log1p(std::exp(-std::abs(x)));
}

// 4 exp(-2|x|) / (1 + exp(-2|x|))^2: 1 - tanh(x)^2 would cancel.
long double TrueTanhSlope(long double x) {
  const long double e = std::exp(-2 * std::abs(x));
  return 4 * e / ((1 + e) * (1 + e));
}

long double TrueErfSlope(long double x) {
  return 2 * std::numbers::inv_sqrtpi_v<long double> * std::exp(-x * x);
}

template <class T>
struct Function {
  const char* name;
  void (*array)(const T* x, int64_t n, T* y);
  long double (*truth)(long double x);
  double tolerance;   // in ulp of the result
  double zero;        // below this multiple of the smallest normal number 0 is accepted, too
  double square = 0;  // further tolerance for each x^2, without fused multiply-add
};

// The documented limit is 4 ulp. These bounds are tighter, to detect regressions. The error of exp
// is half an ulp from its last step, and half an ulp from argument and polynomial. Sigmoid and tanh
// have one more ulp each, for a sum and a division near a power of two. Erf is 1 minus at most 0.19
// there, or x plus at most 0.13 of it. The slope of tanh is a product with the square of a
// quotient. That of erf
// multiplies the rounding error of x^2 by x^2 where it is not known.
template <class T>
const Function<T> kFunctions[] = {
    {"exp", ExpArray<T>, [](long double x) { return std::exp(x); }, 1.5, 0},
    {"sigmoid", SigmoidArray<T>, TrueSigmoid, 3, 1},
    {"tanh", TanhArray<T>, [](long double x) { return std::tanh(x); }, 3, 0},
    {"erf", ErfArray<T>, [](long double x) { return std::erf(x); }, 2, 0},
    {"tanh'", TanhSlopeArray<T>, TrueTanhSlope, 5.5, 8},
    {"erf'", ErfSlopeArray<T>, TrueErfSlope, 3, 0, 1},
    {"softplus", SoftplusArray<T>, TrueSoftplus, 3.5, 0},
};

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

/// Returns |y - truth| in units of the spacing of T around the truth.
template <class T>
double UlpError(T y, long double truth) {
  using Limits = std::numeric_limits<T>;
  // From half an ulp beyond the largest value on, infinity is the nearest value.
  const auto most = static_cast<long double>(Limits::max());
  const long double beyond = most * (1 + std::ldexp(1.0L, -Limits::digits - 1));
  if (std::isinf(y)) return truth >= beyond ? 0 : 1 + static_cast<double>((beyond - truth) / most);
  if (std::isnan(y)) return std::numeric_limits<double>::infinity();
  const int exponent =
      truth == 0 ? Limits::min_exponent : std::max(std::ilogb(truth) + 1, Limits::min_exponent);
  return static_cast<double>(std::abs(static_cast<long double>(y) - truth) /
                             std::ldexp(1.0L, exponent - Limits::digits));
}

/// Returns all values but NaN, `stride` bit patterns apart, and the first and last of every
/// exponent.
template <class T>
std::vector<T> Samples(BitsOf<T> stride) {
  using Bits = BitsOf<T>;
  constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
  constexpr Bits kInfinity = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  std::vector<T> samples;
  const auto add = [&](Bits bits) {
    samples.push_back(std::bit_cast<T>(bits));
    samples.push_back(-std::bit_cast<T>(bits));
  };
  for (Bits bits = 0; bits <= kInfinity; bits += stride) {
    add(bits);
    if (bits > kInfinity - stride) break;
  }
  for (Bits exponent = 0; exponent < kInfinity; exponent += Bits{1} << kMantissa) {
    for (Bits i = 0; i < 4; ++i) {
      add(exponent + i);
      add(exponent + (Bits{1} << kMantissa) - 1 - i);
    }
  }
  add(kInfinity);
  return samples;
}

template <class T>
void ExpectClose(const std::vector<T>& x, const char* type) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<T> y(x.size());
  std::vector<long double> truth(x.size());
  for (const Function<T>& f : kFunctions<T>) {
    std::transform(x.begin(), x.end(), truth.begin(), f.truth);
    const std::string before = Target();
    for (const std::string& target : Targets()) {
      SetTarget(target);
      f.array(x.data(), n, y.data());
      double worst = 0;
      T at = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const bool may_be_0 = truth[i] < f.zero * std::numeric_limits<T>::min() && truth[i] >= 0;
        const auto square = static_cast<double>(x[i]) * static_cast<double>(x[i]);
        const double slack = std::isfinite(square) ? f.square * square : 0;
        const double error = may_be_0 && y[i] == 0 ? 0 : UlpError(y[i], truth[i]) - slack;
        if (!(error <= worst)) {
          worst = error;
          at = x[i];
        }
      }
      std::printf("%-7s of %-6s on %-6s: %.3f ulp at %a\n", f.name, type, target.c_str(), worst,
                  static_cast<double>(at));
      EXPECT_LE(worst, f.tolerance) << f.name << " of " << type << " on " << target;
    }
    SetTarget(before);
  }
}

TEST(MathTest, FloatsOfEverySize) { ExpectClose(Samples<float>(2039), "float"); }

TEST(MathTest, DoublesOfEverySize) {
  // A prime, like the one above.
  ExpectClose(Samples<double>(uint64_t{17592186044423}), "double");
}

template <class T>
std::vector<T> Uniform(T from, T to, int n) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<T> number(from, to);
  std::vector<T> x(static_cast<size_t>(n));
  for (T& value : x) value = number(random);
  return x;
}

// Values with nontrivial results; most bit patterns are far outside this range.
TEST(MathTest, ValuesWithNontrivialResults) {
  for (const double most : {1.0, 20.0, 110.0}) {
    const auto limit = static_cast<float>(most);
    ExpectClose(Uniform<float>(-limit, limit, 300000), "float");
  }
  for (const double most : {1.0, 40.0, 750.0}) {
    ExpectClose(Uniform<double>(-most, most, 300000), "double");
  }
}

template <class T>
void ExpectLimits() {
  constexpr T kInf = std::numeric_limits<T>::infinity();
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
  const std::string before = Target();
  for (const std::string& target : Targets()) {
    SetTarget(target);
    // As part of a vector, and one at a time.
    for (const int64_t n : {1, 16, 17}) {
      const auto all = [&](void (*array)(const T*, int64_t, T*), T x) {
        std::vector<T> values(static_cast<size_t>(n), x);
        array(values.data(), n, values.data());
        for (const T value : values) {
          // Compares bits, because NaN differs from itself.
          EXPECT_EQ(std::memcmp(&value, &values[0], sizeof(T)), 0) << target;
        }
        return values[0];
      };
      EXPECT_EQ(all(ExpArray<T>, -kInf), 0) << target;
      EXPECT_EQ(all(ExpArray<T>, kInf), kInf) << target;
      EXPECT_EQ(all(ExpArray<T>, 0), 1) << target;
      EXPECT_EQ(all(ExpArray<T>, -T{0}), 1) << target;
      EXPECT_EQ(all(SigmoidArray<T>, -kInf), 0) << target;
      EXPECT_EQ(all(SigmoidArray<T>, kInf), 1) << target;
      EXPECT_EQ(all(SigmoidArray<T>, 0), T{0.5}) << target;
      EXPECT_EQ(all(TanhArray<T>, -kInf), -1) << target;
      EXPECT_EQ(all(TanhArray<T>, kInf), 1) << target;
      EXPECT_EQ(all(ErfArray<T>, -kInf), -1) << target;
      EXPECT_EQ(all(ErfArray<T>, kInf), 1) << target;
      EXPECT_FALSE(std::signbit(all(ErfArray<T>, 0))) << target;
      EXPECT_TRUE(std::signbit(all(ErfArray<T>, -T{0}))) << target;
      for (const T x : {-kInf, kInf}) {
        EXPECT_EQ(all(TanhSlopeArray<T>, x), 0) << target;
        EXPECT_EQ(all(ErfSlopeArray<T>, x), 0) << target;
      }
      EXPECT_EQ(all(TanhSlopeArray<T>, 0), 1) << target;
      EXPECT_EQ(all(TanhArray<T>, 0), 0) << target;
      EXPECT_FALSE(std::signbit(all(TanhArray<T>, 0))) << target;
      EXPECT_TRUE(std::signbit(all(TanhArray<T>, -T{0}))) << target;
      for (const T nan : {kNan, -kNan}) {
        EXPECT_TRUE(std::isnan(all(ExpArray<T>, nan))) << target;
        EXPECT_TRUE(std::isnan(all(SigmoidArray<T>, nan))) << target;
        EXPECT_TRUE(std::isnan(all(TanhArray<T>, nan))) << target;
        EXPECT_TRUE(std::isnan(all(ErfArray<T>, nan))) << target;
        EXPECT_TRUE(std::isnan(all(TanhSlopeArray<T>, nan))) << target;
        EXPECT_TRUE(std::isnan(all(ErfSlopeArray<T>, nan))) << target;
      }
    }
  }
  SetTarget(before);
}

TEST(MathTest, LimitsOfFloat) { ExpectLimits<float>(); }
TEST(MathTest, LimitsOfDouble) { ExpectLimits<double>(); }

}  // namespace
}  // namespace planish::internal
