#ifndef PLANISH_SRC_NORM_CHANNELS_COLUMNS_TESTING_H_
#define PLANISH_SRC_NORM_CHANNELS_COLUMNS_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <ostream>
#include <random>
#include <vector>

#include "src/norm/reference.h"
#include "src/norm/testing.h"

// Helpers beyond testing.h for the tests of norms over channels and of weights.
namespace planish::tests {

using Real = long double;  // of the references

/// Sizes of a [batch, channels, spatial] array.
struct Shape {
  int64_t batch, channels, spatial;
  int64_t total() const { return batch * channels * spatial; }
  int64_t positions() const { return batch * spatial; }
  int64_t At(int64_t b, int64_t c, int64_t s) const { return (b * channels + c) * spatial + s; }
};

inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.batch << " x " << shape.channels << " x " << shape.spatial;
}

/// Like Normal, but repeats its values with a period that divides no size: drawing more would take
/// longer than the tests.
template <class T>
std::vector<T> Random(int64_t n, std::mt19937& random, double mean = 0, double deviation = 1) {
  constexpr int64_t kPeriod = 65521;
  std::vector<T> values = Normal<T>(std::min(n, kPeriod), random, mean, deviation);
  values.resize(static_cast<size_t>(n));
  for (size_t i = kPeriod; i < values.size(); ++i) values[i] = values[i - kPeriod];
  return values;
}

/// Inputs of both directions. Empty `gain` and `bias` mean null.
template <class Options, class T, class P>
struct ChannelProblem {
  ChannelProblem(Shape of, bool affine, double mean, double deviation) : shape(of) {
    std::mt19937 random(
        static_cast<uint32_t>(1 + shape.batch + 1000 * shape.channels + shape.spatial));
    x = Random<T>(shape.total(), random, mean, deviation);
    dy = Random<T>(shape.total(), random);
    if (!affine) return;
    gain = Random<P>(shape.channels, random);
    bias = Random<P>(shape.channels, random);
  }

  Shape shape;
  Options options;
  std::vector<T> x, dy;
  std::vector<P> gain, bias;
};

template <class Args>
Args WithSizes(Args args, const Shape& shape) {
  args.batch = shape.batch;
  args.channels = shape.channels;
  args.spatial = shape.spatial;
  return args;
}

/// Returns the largest error of rounding `value` to T.
template <class T>
Real StorageError(Real value) {
  return std::max<Real>(UnitRoundoff<T>() * std::abs(value), HalfOfLeast<T>());
}

inline ::testing::AssertionResult Near(Real value, Real expected, Real tolerance) {
  const Real error = std::abs(value - expected);
  if (error <= tolerance) return ::testing::AssertionSuccess();  // false if anything is NaN
  return ::testing::AssertionFailure()
         << value << " is " << error << " from " << expected << ", more than " << tolerance;
}

/// Copy of `values` at an address `offset` elements beyond a cache line.
template <class T>
struct Shifted {
  Shifted(const std::vector<T>& values, int64_t offset)
      : data(values.size() + 128 / sizeof(T), T{}), size(values.size()) {
    const auto address = reinterpret_cast<uintptr_t>(data.data());
    begin = data.data() + (64 - address % 64) % 64 / sizeof(T) + offset;
    std::copy(values.begin(), values.end(), begin);
  }
  std::vector<T> values() const { return {begin, begin + size}; }

  std::vector<T> data;
  size_t size;
  T* begin;
};

/// Returns the derivative of sum(weight * f(x)) with respect to x[i], by the complex step
/// (docs/math.md).
template <class F>
Real ComplexDerivative(const F& f, const std::vector<Real>& x, const std::vector<Real>& weight,
                       size_t i) {
  using Complex = std::complex<Real>;
  const Real step = internal::ComplexStep<Real>();
  std::vector<Complex> moved(x.begin(), x.end());
  moved[i] += Complex(0, step);
  const std::vector<Complex> y = f(moved);
  Real sum = 0;
  for (size_t k = 0; k < x.size(); ++k) sum += weight[k] * y[k].imag();
  return sum / step;
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_NORM_CHANNELS_COLUMNS_TESTING_H_
