#ifndef PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_TESTING_H_
#define PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "planish/batch_norm.h"
#include "src/norm/channels/columns_testing.h"

// Problems and the reference of batch norm, for the tests of CPU and GPU.
namespace planish::tests::batch_norm {

template <class T, class P = T>
struct Problem : tests::ChannelProblem<BatchNormOptions, T, P> {
  explicit Problem(Shape of, bool affine = true, double mean = 0, double deviation = 1)
      : tests::ChannelProblem<BatchNormOptions, T, P>(of, affine, mean, deviation) {}
};

template <class T, class P = T>
struct Result : tests::Outputs<T, P> {
  explicit Result(const Problem<T, P>& p)
      : tests::Outputs<T, P>(p.shape.total(), p.shape.channels, p.shape.channels),
        running_mean(p.shape.channels, 2),
        running_var(p.shape.channels, 3) {}

  std::string DiffersIn(const Result& other) const {
    if (!SameBits(running_mean, other.running_mean)) return "running_mean";
    if (!SameBits(running_var, other.running_var)) return "running_var";
    return tests::Outputs<T, P>::DiffersIn(other);
  }

  std::vector<Compute<T>> running_mean, running_var;
};

template <class T, class P>
BatchNormForwardArgs<T, P> ForwardArgs(const Problem<T, P>& p, Result<T, P>& out) {
  auto args = WithSizes(ForwardArrays<BatchNormForwardArgs<T, P>>(p, out), p.shape);
  args.running_mean = out.running_mean.data();
  if (p.shape.positions() != 1) args.running_var = out.running_var.data();
  return args;
}

template <class T, class P>
BatchNormBackwardArgs<T, P> BackwardArgs(const Problem<T, P>& p, Result<T, P>& out) {
  return WithSizes(BackwardArrays<BatchNormBackwardArgs<T, P>>(p, out), p.shape);
}

/// Returns the arguments of evaluation with these running estimates.
template <class T, class P>
BatchNormEvaluateArgs<T, P> EvaluateArgs(const Problem<T, P>& p,
                                         const std::vector<Compute<T>>& mean,
                                         const std::vector<Compute<T>>& var, Result<T, P>& out) {
  return {.batch = p.shape.batch,
          .channels = p.shape.channels,
          .spatial = p.shape.spatial,
          .x = p.x.data(),
          .gain = p.gain.data(),
          .bias = p.bias.data(),
          .running_mean = mean.data(),
          .running_var = var.data(),
          .y = out.y.data()};
}

template <class T, class P>
BatchNormEvaluateBackwardArgs<T, P> EvaluateBackwardArgs(const Problem<T, P>& p,
                                                         const std::vector<Compute<T>>& mean,
                                                         const std::vector<Compute<T>>& var,
                                                         Result<T, P>& out) {
  return {.batch = p.shape.batch,
          .channels = p.shape.channels,
          .spatial = p.shape.spatial,
          .dy = p.dy.data(),
          .x = p.x.data(),
          .gain = p.gain.data(),
          .running_mean = mean.data(),
          .running_var = var.data(),
          .dx = out.dx.data(),
          .dgain = out.dgain.data(),
          .dbias = out.dbias.data()};
}

/// Returns the elements of channel c, in order.
template <class T>
std::vector<Real> ChannelOf(const Shape& shape, const std::vector<T>& values, int64_t c) {
  std::vector<Real> channel;
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t s = 0; s < shape.spatial; ++s) {
      channel.push_back(ToDouble(values[shape.At(b, c, s)]));
    }
  }
  return channel;
}

/// Returns xhat of a channel, by its equation.
template <class Scalar>
std::vector<Scalar> ReferenceXhat(const std::vector<Scalar>& x, double eps, bool unbiased) {
  using std::sqrt;
  const Scalar n(static_cast<double>(x.size()));
  Scalar mean(0), var(0);
  for (const Scalar& value : x) mean += value / n;
  for (const Scalar& value : x) var += (value - mean) * (value - mean);
  var /= unbiased ? n - Scalar(1) : n;
  std::vector<Scalar> xhat;
  for (const Scalar& value : x) xhat.push_back((value - mean) / sqrt(var + Scalar(eps)));
  return xhat;
}

/// Checks that every output agrees with the reference within rounding errors. u is the unit
/// roundoff of the arithmetic.
template <class T, class P>
void ExpectAgreesWithReference(const Problem<T, P>& p, const Result<T, P>& out) {
  SCOPED_TRACE(testing::Message() << p.shape << (p.gain.empty() ? "" : " affine")
                                  << (p.options.unbiased ? " unbiased" : ""));
  const Shape& shape = p.shape;
  const Real u = UnitRoundoff<Compute<T>>(), n = static_cast<Real>(shape.positions());
  // Sums are in C over 8 rows, or over up to 1024 elements in at least 4 lanes. Doubles have 2
  // lanes and two vectors at a time. Further sums are in double. Additions have independent errors
  // of u: 4 sqrt(k) u covers four standard deviations. Terms have 2 u. For doubles the sums in
  // double also count.
  const Real additions = (shape.spatial < 64 ? 8 : 256) + (std::is_same_v<T, double> ? n : Real{0});
  const Real sum_error = (4 * std::sqrt(additions) + 2) * u + n * 0x1p-53L;
  // The sum of squares about the shift is at most 4 times that about the mean.
  const Real statistic_error = 4 * sum_error;
  for (int64_t c = 0; c < shape.channels; ++c) {
    SCOPED_TRACE(testing::Message() << "channel " << c);
    std::vector<Real> x = ChannelOf(shape, p.x, c), dy = ChannelOf(shape, p.dy, c);
    // Subtracting an element of the channel preserves digits of the reference.
    const Real shift = x.back();
    for (Real& value : x) value -= shift;
    const Real gain = p.gain.empty() ? 1 : ToDouble(p.gain[c]);
    const Real bias = p.bias.empty() ? 0 : ToDouble(p.bias[c]);
    const auto normalize = [&](const auto& values) {
      return ReferenceXhat(values, p.options.eps, p.options.unbiased);
    };
    const std::vector<Real> xhat = normalize(x);
    Real mean = 0, var = 0, dgain = 0, dbias = 0, abs_dgain = 0, abs_dbias = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      mean += x[i] / n;
      dgain += dy[i] * xhat[i];
      dbias += dy[i];
      abs_dgain += std::abs(dy[i] * xhat[i]);
      abs_dbias += std::abs(dy[i]);
    }
    for (const Real value : x) var += (value - mean) * (value - mean);
    const Real deviation = std::sqrt(var / n);
    // Error of a mean of values about the shift.
    const Real mean_error = 2 * deviation * sum_error;
    ASSERT_TRUE(Near((out.mean[c] - shift) + out.mean_lo[c], mean,
                     mean_error + u * std::abs(Real{out.mean_lo[c]})));
    const Real rstd = 1 / std::sqrt(var / (p.options.unbiased ? n - 1 : n) + Real{p.options.eps});
    ASSERT_TRUE(Near(out.rstd[c], rstd, rstd * (u + statistic_error)));
    const Real momentum = p.options.momentum ? *p.options.momentum
                                             : Real{1} / static_cast<Real>(p.options.batches + 1);
    const Real running_mean = (1 - momentum) * 2 + momentum * (shift + mean);
    // Two products and a sum; for floats in double.
    ASSERT_TRUE(
        Near(out.running_mean[c], running_mean, 4 * u * std::abs(running_mean) + mean_error));
    if (shape.positions() > 1) {
      const Real running_var = (1 - momentum) * 3 + momentum * var / (n - 1);
      ASSERT_TRUE(Near(out.running_var[c], running_var, running_var * (u + statistic_error)));
    }
    const Real lo = std::abs(Real{out.mean_lo[c]}) * rstd;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto at = shape.At(static_cast<int64_t>(i) / shape.spatial, c,
                               static_cast<int64_t>(i) % shape.spatial);
      // xhat: a difference, a product, the rounding of the scale or rstd, and an addition.
      const Real xhat_error =
          (4 * u + statistic_error) * std::abs(xhat[i]) + mean_error * rstd + 2 * u * lo;
      const Real y = gain * xhat[i] + bias;
      const Real y_error = std::abs(gain) * xhat_error + u * (std::abs(y) + std::abs(bias));
      ASSERT_TRUE(Near(ToDouble(out.y[at]), y, y_error + StorageError<T>(std::abs(y) + y_error)))
          << "y of number " << i;
    }
    // Terms have the error of xhat and of a product.
    const Real dgain_error = (sum_error + 4 * u + statistic_error) * abs_dgain +
                             (mean_error * rstd + 2 * u * lo) * abs_dbias;
    ASSERT_TRUE(Near(ToDouble(out.dgain[c]), dgain,
                     dgain_error + StorageError<P>(std::abs(dgain) + dgain_error)));
    const Real dbias_error = sum_error * abs_dbias;
    ASSERT_TRUE(Near(ToDouble(out.dbias[c]), dbias,
                     dbias_error + StorageError<P>(std::abs(dbias) + dbias_error)));
    const size_t step = std::max<size_t>(1, x.size() / 8);
    for (size_t i = 0; i < x.size(); i += step) {
      const Real dx = gain * tests::ComplexDerivative(normalize, x, dy, i);
      const auto at = shape.At(static_cast<int64_t>(i) / shape.spatial, c,
                               static_cast<int64_t>(i) % shape.spatial);
      const Real m = p.options.unbiased ? n - 1 : n;
      // Two means with their errors, twice that of xhat, two subtractions, and the scale.
      const Real error = std::abs(gain) * rstd *
                         ((statistic_error + 4 * u) *
                              (std::abs(dy[i]) + (abs_dbias + std::abs(xhat[i]) * abs_dgain) / m) +
                          dbias_error / n + std::abs(xhat[i]) * dgain_error / m +
                          (mean_error * rstd + 2 * u * lo) * abs_dgain / m);
      ASSERT_TRUE(Near(ToDouble(out.dx[at]), dx, error + StorageError<T>(std::abs(dx) + error)))
          << "dx of number " << i;
    }
  }
}

}  // namespace planish::tests::batch_norm

#endif  // PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_TESTING_H_
