#ifndef PLANISH_SRC_NORM_COLUMNS_TESTING_H_
#define PLANISH_SRC_NORM_COLUMNS_TESTING_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "planish/error.h"
#include "planish/parallel.h"
#include "planish/target.h"
#include "planish/types.h"
#include "src/base/tuning.h"
#include "src/norm/columns_moments.h"
#include "src/norm/params.h"

// What the tests of norms over channels share.
namespace planish::internal {

using Real = long double;  // of the references

/// [batch, channels, spatial].
struct Shape {
  int64_t batch, channels, spatial;
  int64_t total() const { return batch * channels * spatial; }
  int64_t positions() const { return batch * spatial; }
  int64_t At(int64_t b, int64_t c, int64_t s) const { return (b * channels + c) * spatial + s; }
};

inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.batch << " x " << shape.channels << " x " << shape.spatial;
}

/// Unit roundoff: of the arithmetic for T, and of storing a T.
template <class T>
inline constexpr Real kArithmetic = std::numeric_limits<Compute<T>>::epsilon() / 2;
template <class T>
inline constexpr Real kStorage = kArithmetic<T>;
template <>
inline constexpr Real kStorage<bfloat16> = 0x1p-8L;
template <>
inline constexpr Real kStorage<float16> = 0x1p-11L;

/// What rounding `value` to T can change it by. Below 2^-14 float16 has steps of 2^-24.
template <class T>
Real StorageError(Real value) {
  const Real error = kStorage<T> * std::abs(value);
  return std::is_same_v<T, float16> ? std::max(error, 0x1p-25L) : error;
}

inline testing::AssertionResult Near(Real value, Real expected, Real tolerance) {
  const Real error = std::abs(value - expected);
  if (error <= tolerance) return testing::AssertionSuccess();  // not so if anything is NaN
  return testing::AssertionFailure()
         << value << " is " << error << " from " << expected << ", more than " << tolerance;
}

template <class T>
T Make(double value) {
  return FromCompute<T>(static_cast<Compute<T>>(value));
}

template <class T>
Real Value(T value) {
  return ToDouble(value);
}

template <class T>
std::vector<T> Random(int64_t n, std::mt19937& random, double mean = 0, double deviation = 1) {
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<T> values(static_cast<size_t>(n));
  // Large arrays repeat themselves, at a period that no size has: drawing takes longer than the
  // tests.
  constexpr size_t kPeriod = 65521;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = i < kPeriod ? Make<T>(normal(random)) : values[i - kPeriod];
  }
  return values;
}

template <class T>
T Unset() {
  return Make<T>(std::numeric_limits<double>::quiet_NaN());
}

template <class T>
bool IsNan(T value) {
  return std::isnan(ToDouble(value));
}

/// To the bit, but for NaN, which equals NaN.
template <class T>
bool Same(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(a[i] == b[i] || (IsNan(a[i]) && IsNan(b[i])))) return false;
  }
  return true;
}

template <class T>
const T* OrNull(const std::vector<T>& values) {
  return values.empty() ? nullptr : values.data();
}

/// Calls its task with `parts` ranges, in an order that begins in the middle.
inline ParallelFor SplitIn(int64_t parts, int* calls) {
  return [parts, calls](int64_t begin, int64_t end, int64_t grain, RangeTask task) {
    ++*calls;
    EXPECT_GE(grain, 1);
    const int64_t n = end - begin;
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t at = parts % 2 ? (i * 2 + parts / 2) % parts : parts - 1 - i;
      const int64_t from = begin + at * n / parts, to = begin + (at + 1) * n / parts;
      if (from < to) task(from, to);
    }
  };
}

/// Calls f with each instruction set that can run here.
template <class F>
void ForEachTarget(F&& f) {
  const std::string before = Target();
  for (const std::string& target : Targets()) {
    SCOPED_TRACE(target);
    SetTarget(target);
    f();
  }
  SetTarget(before);
}

/// While one lives all results are stored past the caches.
class Streaming {
 public:
  Streaming() { SetStreamingBytes(0); }
  ~Streaming() { SetStreamingBytes(before_); }
  Streaming(const Streaming&) = delete;
  Streaming& operator=(const Streaming&) = delete;

 private:
  int64_t before_ = StreamingBytes();
};

/// `values` from an address that is `offset` numbers off one of a cache line.
template <class T>
struct Shifted {
  Shifted(const std::vector<T>& values, int64_t offset)
      : data(values.size() + 128 / sizeof(T), Make<T>(0)), size(values.size()) {
    const auto address = reinterpret_cast<uintptr_t>(data.data());
    begin = data.data() + (64 - address % 64) % 64 / sizeof(T) + offset;
    std::copy(values.begin(), values.end(), begin);
  }
  std::vector<T> values() const { return {begin, begin + size}; }

  std::vector<T> data;
  size_t size;
  T* begin;
};

/// The text of the Error that `call` throws, or "".
template <class F>
std::string ErrorOf(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The derivative of sum(weight * f(x)) along x[i], by the complex step (docs/math.md).
template <class F>
Real ComplexDerivative(const F& f, const std::vector<Real>& x, const std::vector<Real>& weight,
                       size_t i) {
  using Complex = std::complex<Real>;
  const Real step = std::sqrt(std::numeric_limits<Real>::min());
  std::vector<Complex> moved(x.begin(), x.end());
  moved[i] += Complex(0, step);
  const std::vector<Complex> y = f(moved);
  Real sum = 0;
  for (size_t k = 0; k < x.size(); ++k) sum += weight[k] * y[k].imag();
  return sum / step;
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_COLUMNS_TESTING_H_
