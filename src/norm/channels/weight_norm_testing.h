#ifndef PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_TESTING_H_
#define PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "planish/weight_norm.h"
#include "src/norm/channels/columns_testing.h"

// Problems and the reference of weight normalization, for the tests of CPU and GPU.
namespace planish::tests::weight_norm {

template <class T, class P = T>
struct Problem {
  Problem(int64_t rows_, int64_t cols_, double scale = 1) : rows(rows_), cols(cols_) {
    std::mt19937 random(static_cast<uint32_t>(1 + 1000 * rows + cols));
    v = Random<T>(rows * cols, random, 0.5 * scale, scale);
    dw = Random<T>(rows * cols, random);
    g = Random<P>(rows, random);
  }
  int64_t rows, cols;
  std::vector<T> v, dw;
  std::vector<P> g;
};

template <class T, class P = T>
struct Result {
  explicit Result(const Problem<T, P>& p)
      : w(p.v.size(), Unset<T>()),
        dv(p.v.size(), Unset<T>()),
        norm(p.rows, Unset<Compute<T>>()),
        dg(p.rows, Unset<P>()) {}
  std::vector<T> w, dv;
  std::vector<Compute<T>> norm;
  std::vector<P> dg;

  /// Returns the name of an output whose bits differ, or "".
  std::string DiffersIn(const Result& other) const {
    if (!SameBits(w, other.w)) return "w";
    if (!SameBits(dv, other.dv)) return "dv";
    if (!SameBits(norm, other.norm)) return "norm";
    if (!SameBits(dg, other.dg)) return "dg";
    return "";
  }
};

template <class T, class P>
WeightNormForwardArgs<T, P> ForwardArgs(const Problem<T, P>& p, Result<T, P>& out) {
  return {.rows = p.rows,
          .cols = p.cols,
          .v = p.v.data(),
          .g = p.g.data(),
          .w = out.w.data(),
          .norm = out.norm.data()};
}

template <class T, class P>
WeightNormBackwardArgs<T, P> BackwardArgs(const Problem<T, P>& p, Result<T, P>& out) {
  return {.rows = p.rows,
          .cols = p.cols,
          .dw = p.dw.data(),
          .v = p.v.data(),
          .g = p.g.data(),
          .norm = out.norm.data(),
          .dv = out.dv.data(),
          .dg = out.dg.data()};
}

/// Returns v / ||v||, by its equation.
template <class Scalar>
std::vector<Scalar> Direction(const std::vector<Scalar>& v) {
  using std::sqrt;
  Scalar square(0);
  for (const Scalar& value : v) square += value * value;
  std::vector<Scalar> direction;
  for (const Scalar& value : v) direction.push_back(value / sqrt(square));
  return direction;
}

/// Checks results within rounding errors; u is the unit roundoff of the arithmetic.
template <class T, class P>
void ExpectAgreesWithReference(const Problem<T, P>& p, const Result<T, P>& out) {
  SCOPED_TRACE(testing::Message() << p.rows << " x " << p.cols);
  const Real u = UnitRoundoff<Compute<T>>();
  // Sums are in C over up to 1024 elements in at least 4 lanes, then in double. Sums of fewer than
  // 64 elements in fewer lanes are in double. Additions have independent errors of u: 4 sqrt(k) u
  // covers four standard deviations.
  const Real additions = std::max(Real{1}, static_cast<Real>(std::min<int64_t>(p.cols, 1024)) / 4) +
                         (std::is_same_v<T, double> ? static_cast<Real>(p.cols) : Real{0});
  const Real sum_error = (4 * std::sqrt(additions) + 2) * u + static_cast<Real>(p.cols) * 0x1p-53L;
  for (int64_t r = 0; r < p.rows; ++r) {
    std::vector<Real> v, dw;
    for (int64_t i = r * p.cols; i < (r + 1) * p.cols; ++i) {
      v.push_back(ToDouble(p.v[i]));
      dw.push_back(ToDouble(p.dw[i]));
    }
    const std::vector<Real> direction = Direction(v);
    const Real g = ToDouble(p.g[r]);
    Real square = 0, dg = 0, abs_dg = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      square += v[i] * v[i];
      dg += dw[i] * direction[i];
      abs_dg += std::abs(dw[i] * direction[i]);
    }
    const Real norm = std::sqrt(square);
    ASSERT_TRUE(Near(out.norm[r], norm, norm * (sum_error / 2 + u)));
    // A product with 1 / norm, a product with dw, and the sum.
    const Real dg_error = (3 * sum_error / 2 + 4 * u) * abs_dg;
    ASSERT_TRUE(Near(ToDouble(out.dg[r]), dg, dg_error + StorageError<P>(std::abs(dg) + dg_error)));
    const size_t step = std::max<size_t>(1, v.size() / 8);
    for (size_t i = 0; i < v.size(); ++i) {
      const auto at = r * p.cols + static_cast<int64_t>(i);
      const Real w = g * direction[i];
      // The norm, the scale and the product.
      const Real w_error = (sum_error / 2 + 2 * u) * std::abs(w);
      ASSERT_TRUE(Near(ToDouble(out.w[at]), w, w_error + StorageError<T>(std::abs(w) + w_error)));
      if (i % step != 0) continue;
      const auto along = [](const auto& values) { return Direction(values); };
      const Real dv = g * tests::ComplexDerivative(along, v, dw, i);
      // The direction, its product with dg, a difference, the scale and the product with it.
      const Real error =
          std::abs(g) / norm *
          ((sum_error / 2 + 6 * u) * (std::abs(dw[i]) + std::abs(direction[i] * dg)) +
           std::abs(direction[i]) * dg_error);
      ASSERT_TRUE(Near(ToDouble(out.dv[at]), dv, error + StorageError<T>(std::abs(dv) + error)));
    }
  }
}

}  // namespace planish::tests::weight_norm

#endif  // PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_TESTING_H_
