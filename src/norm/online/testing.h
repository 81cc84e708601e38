#ifndef PLANISH_SRC_NORM_ONLINE_TESTING_H_
#define PLANISH_SRC_NORM_ONLINE_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "planish/online_norm.h"
#include "src/norm/reference.h"
#include "src/norm/testing.h"

// Problems and the reference of online normalization, for the tests of CPU and GPU.
namespace planish::tests::online_norm {

using Real = double;
using Complex = std::complex<Real>;

/// One case by its equations. The state before it is a constant; `state` becomes the next state.
template <class Scalar>
std::vector<Scalar> ReferenceCase(const std::vector<Scalar>& x, Real alpha, Scalar& mean,
                                  Scalar& deviation) {
  const Scalar n(static_cast<Real>(x.size()));
  internal::ExactSum<Scalar> sum, squares;
  for (const Scalar& value : x) sum += value;
  mean = alpha * (sum.value() / n) + (1 - alpha) * mean;
  for (const Scalar& value : x) squares += (value - mean) * (value - mean);
  deviation = alpha * std::sqrt(squares.value() / (n - Scalar(1))) + (1 - alpha) * deviation;
  std::vector<Scalar> z;
  for (const Scalar& value : x) z.push_back((value - mean) / deviation);
  return z;
}

template <class T>
struct Problem {
  Problem(int64_t r, int64_t c, double alpha_, double mean = 0) : rows(r), cols(c), alpha(alpha_) {
    std::mt19937 random(static_cast<uint32_t>(rows * 1000 + cols));
    x = Normal<T>(rows * cols, random, mean);
    dy = Normal<T>(rows * cols, random);
    gain = Normal<T>(cols, random);
    bias = Normal<T>(cols, random);
  }
  /// Options with alphas if there are any, otherwise with alpha.
  OnlineNormOptions Options(const ParallelFor& parallel_for = SerialFor) const {
    return {.alpha = alpha,
            .alphas = alphas.empty() ? nullptr : alphas.data(),
            .parallel_for = parallel_for};
  }

  int64_t rows, cols;
  double alpha;
  std::vector<double> alphas;
  std::vector<T> x, dy, gain, bias;
};

template <class T>
struct Result : tests::Outputs<T> {
  explicit Result(const Problem<T>& p)
      : tests::Outputs<T>(p.rows * p.cols, p.rows, p.cols),
        offset(p.rows, Unset<T>()),
        deviation(p.rows, Unset<T>()) {}

  std::string DiffersIn(const Result& other) const {
    if (!SameBits(offset, other.offset)) return "offset";
    if (!SameBits(deviation, other.deviation)) return "deviation";
    if (state_mean != other.state_mean) return "state_mean";
    if (state_deviation != other.state_deviation) return "state_deviation";
    return tests::Outputs<T>::DiffersIn(other);
  }

  std::vector<T> offset, deviation;
  double state_mean = 0, state_deviation = 1;
};

template <class T>
OnlineNormForwardArgs<T> ForwardArgs(const Problem<T>& p, Result<T>& out) {
  auto args = ForwardArrays<OnlineNormForwardArgs<T>>(p, out);
  args.rows = p.rows;
  args.cols = p.cols;
  args.offset = out.offset.data();
  args.deviation = out.deviation.data();
  return args;
}

template <class T>
OnlineNormBackwardArgs<T> BackwardArgs(const Problem<T>& p, Result<T>& out) {
  auto args = BackwardArrays<OnlineNormBackwardArgs<T>>(p, out);
  args.rows = p.rows;
  args.cols = p.cols;
  args.offset = out.offset.data();
  args.deviation = out.deviation.data();
  return args;
}

template <class T>
void ExpectAgrees(const Problem<T>& p, const Result<T>& out) {
  // The relative error of a case's sums is a few ulp times the root of the terms in a lane, at most
  // 8. Mean and deviation are averages of these errors with weights that sum to 1. 32 ulp bound all
  // errors. Terms of dx are at most rstd * |g| * (1 + |z|).
  const Real unit = 32 * std::numeric_limits<T>::epsilon();
  Real mean = 0, deviation = 1;
  std::vector<Real> dgain(p.cols), dbias(p.cols), dgain_size(p.cols), dbias_size(p.cols);
  for (int64_t r = 0; r < p.rows; ++r) {
    const std::vector<Real> x(p.x.begin() + r * p.cols, p.x.begin() + (r + 1) * p.cols);
    const Real before_mean = mean, before_deviation = deviation;
    const Real alpha = p.alphas.empty() ? p.alpha : p.alphas[r];
    const std::vector<Real> z = ReferenceCase(x, alpha, mean, deviation);
    Real size = 0, max_z = 1;
    for (int64_t c = 0; c < p.cols; ++c) {
      size = std::max(size, std::abs(Real{p.gain[c]} * p.dy[r * p.cols + c]));
      max_z = std::max(max_z, std::abs(z[c]));
    }
    for (int64_t c = 0; c < p.cols; ++c) {
      const Real dy = p.dy[r * p.cols + c], gain = p.gain[c];
      ASSERT_NEAR(out.y[r * p.cols + c], gain * z[c] + p.bias[c],
                  unit * (std::abs(gain) * max_z + std::abs(Real{p.bias[c]})));
      dgain[c] += dy * z[c];
      dgain_size[c] += std::abs(dy) * max_z;
      dbias[c] += dy;
      dbias_size[c] += std::abs(dy);
      // A derivative reads the whole case, so wide cases are sampled.
      if (p.cols > 257 && c % (p.cols / 16) != 0) continue;
      std::vector<Complex> moved(x.begin(), x.end());
      moved[c] += Complex(0, 1e-100);
      Complex moved_mean = before_mean, moved_deviation = before_deviation;
      const auto moved_z = ReferenceCase(moved, alpha, moved_mean, moved_deviation);
      Real dx = 0;
      for (int64_t i = 0; i < p.cols; ++i) {
        dx += Real{p.dy[r * p.cols + i]} * p.gain[i] * moved_z[i].imag() / 1e-100;
      }
      ASSERT_NEAR(out.dx[r * p.cols + c], dx, unit * size * max_z * max_z / deviation)
          << r << ", " << c;
    }
  }
  for (int64_t c = 0; c < p.cols; ++c) {
    ASSERT_NEAR(out.dgain[c], dgain[c], unit * dgain_size[c]);
    ASSERT_NEAR(out.dbias[c], dbias[c], unit * dbias_size[c]);
  }
  EXPECT_NEAR(out.state_mean, mean, unit * (1 + std::abs(mean)));
  EXPECT_NEAR(out.state_deviation, deviation, unit * deviation);
}

}  // namespace planish::tests::online_norm

#endif  // PLANISH_SRC_NORM_ONLINE_TESTING_H_
