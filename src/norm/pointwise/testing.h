#ifndef PLANISH_SRC_NORM_POINTWISE_TESTING_H_
#define PLANISH_SRC_NORM_POINTWISE_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "planish/pointwise_norm.h"
#include "src/norm/channels/columns_testing.h"

// Problems and the reference of the pointwise functions, for the tests of CPU and GPU.
namespace planish::tests::pointwise {

inline constexpr Pointwise kFunctions[] = {Pointwise::kTanh, Pointwise::kErf};

template <class T, class P = T>
struct Problem {
  Problem(Pointwise f, int64_t rows_, int64_t cols_, double alpha_ = 0.5, double deviation = 3)
      : function(f), rows(rows_), cols(cols_) {
    std::mt19937 random(static_cast<uint32_t>(1 + 1000 * rows + cols));
    x = Random<T>(rows * cols, random, 0.25, deviation);
    dy = Random<T>(rows * cols, random);
    gain = Random<P>(cols, random);
    bias = Random<P>(cols, random);
    alpha = {FromDouble<P>(alpha_)};
    if (f == Pointwise::kErf) shift = {FromDouble<P>(-0.375)};
  }
  Pointwise function;
  int64_t rows, cols;
  std::vector<T> x, dy;
  std::vector<P> alpha, shift, gain, bias;  // empty: null
};

template <class T, class P = T>
struct Result {
  explicit Result(const Problem<T, P>& p)
      : y(p.x.size(), Unset<T>()),
        dx(p.x.size(), Unset<T>()),
        dalpha(1, Unset<P>()),
        dshift(1, Unset<P>()),
        dgain(p.cols, Unset<P>()),
        dbias(p.cols, Unset<P>()) {}
  std::vector<T> y, dx;
  std::vector<P> dalpha, dshift, dgain, dbias;

  /// Returns the name of an output whose bits differ, or "".
  std::string DiffersIn(const Result& other) const {
    if (!SameBits(y, other.y)) return "y";
    if (!SameBits(dx, other.dx)) return "dx";
    if (!SameBits(dalpha, other.dalpha)) return "dalpha";
    if (!SameBits(dshift, other.dshift)) return "dshift";
    if (!SameBits(dgain, other.dgain)) return "dgain";
    if (!SameBits(dbias, other.dbias)) return "dbias";
    return "";
  }
};

template <class N>
const N* OrNull(const std::vector<N>& values) {
  return values.empty() ? nullptr : values.data();
}

template <class T, class P>
PointwiseNormForwardArgs<T, P> ForwardArgs(const Problem<T, P>& p, Result<T, P>& out) {
  return {.rows = p.rows,
          .cols = p.cols,
          .x = p.x.data(),
          .alpha = p.alpha.data(),
          .shift = OrNull(p.shift),
          .gain = OrNull(p.gain),
          .bias = OrNull(p.bias),
          .y = out.y.data()};
}

template <class T, class P>
PointwiseNormBackwardArgs<T, P> BackwardArgs(const Problem<T, P>& p, Result<T, P>& out) {
  return {.rows = p.rows,
          .cols = p.cols,
          .dy = p.dy.data(),
          .x = p.x.data(),
          .alpha = p.alpha.data(),
          .shift = OrNull(p.shift),
          .gain = OrNull(p.gain),
          .dx = out.dx.data(),
          .dalpha = out.dalpha.data(),
          .dshift = out.dshift.data(),
          .dgain = out.dgain.data(),
          .dbias = out.dbias.data()};
}

/// A sum and the bound of its error.
struct BoundedSum {
  Real value = 0, error = 0;
};

/// Checks results within rounding errors. u is the unit roundoff of the arithmetic.
template <class T, class P>
void ExpectAgreesWithReference(const Problem<T, P>& p, const Result<T, P>& out) {
  SCOPED_TRACE(testing::Message() << p.rows << " x " << p.cols << ", function "
                                  << static_cast<int>(p.function));
  using C = Compute<T>;
  const Real u = UnitRoundoff<C>(), alpha = ToDouble(p.alpha[0]);
  const Real shift = p.shift.empty() ? 0 : ToDouble(p.shift[0]);
  // Values and slopes below a few times the smallest normal number can be 0.
  const Real least = 8 * std::numeric_limits<C>::min();
  // Sums are in C over 8 rows, then in double.
  const Real terms = 9 * u + static_cast<Real>(p.rows * p.cols / 8 + 128) * 0x1p-53L;
  BoundedSum dalpha, dshift;
  std::vector<BoundedSum> dgain(p.cols), dbias(p.cols);
  for (int64_t i = 0; i < p.rows * p.cols; ++i) {
    const int64_t c = i % p.cols;
    const Real x = ToDouble(p.x[i]), dy = ToDouble(p.dy[i]);
    const Real gain = p.gain.empty() ? 1 : ToDouble(p.gain[c]);
    const Real bias = p.bias.empty() ? 0 : ToDouble(p.bias[c]);
    const Real z = alpha * x + shift, z_error = 2 * u * (std::abs(alpha * x) + std::abs(z));
    Real f, slope, log_slope;  // log_slope: bound of the derivative of the slope's logarithm
    if (p.function == Pointwise::kTanh) {
      const Real e = std::exp(-2 * std::abs(z));
      f = std::tanh(z);
      slope = 4 * e / ((1 + e) * (1 + e));
      log_slope = 2;
    } else {
      f = std::erf(z);
      slope = 2 * std::numbers::inv_sqrtpi_v<Real> * std::exp(-z * z);
      log_slope = 2 * (std::abs(z) + z_error);
    }
    // f within 4 ulp; the slope within 6 ulp, or 4 + z^2 without fused multiply-add.
    const Real f_error = 8 * u * std::abs(f) + Real{1.13} * z_error + least;
    const Real slope_error =
        slope * std::expm1((12 + 2 * z * z) * u + log_slope * z_error) + 2 * least;
    const Real y = gain * f + bias;
    const Real y_error = std::abs(gain) * f_error + u * (std::abs(gain * f) + std::abs(y));
    ASSERT_TRUE(Near(ToDouble(out.y[i]), y, y_error + StorageError<T>(std::abs(y) + y_error)));
    const Real g = dy * gain * slope;
    const Real g_error = std::abs(dy * gain) * slope_error + 3 * u * std::abs(g) + 2 * least;
    const Real dx = alpha * g, dx_error = std::abs(alpha) * (g_error + u * std::abs(g)) + least;
    ASSERT_TRUE(Near(ToDouble(out.dx[i]), dx, dx_error + StorageError<T>(std::abs(dx) + dx_error)))
        << "x = " << x;
    const auto add = [&](BoundedSum& sum, Real term, Real error) {
      sum.value += term;
      sum.error += error + terms * std::abs(term);
    };
    add(dalpha, g * x, g_error * std::abs(x));
    add(dshift, g, g_error);
    add(dgain[c], dy * f, std::abs(dy) * f_error);
    add(dbias[c], dy, 0);
  }
  const auto expect = [&](const char* name, P value, const BoundedSum& sum) {
    const Real error = sum.error + u * std::abs(sum.value);
    EXPECT_TRUE(
        Near(ToDouble(value), sum.value, error + StorageError<P>(std::abs(sum.value) + error)))
        << name;
  };
  expect("dalpha", out.dalpha[0], dalpha);
  expect("dshift", out.dshift[0], dshift);
  for (int64_t c = 0; c < p.cols; ++c) {
    expect("dgain", out.dgain[c], dgain[c]);
    expect("dbias", out.dbias[c], dbias[c]);
  }
}

}  // namespace planish::tests::pointwise

#endif  // PLANISH_SRC_NORM_POINTWISE_TESTING_H_
