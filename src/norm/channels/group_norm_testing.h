#ifndef PLANISH_SRC_NORM_CHANNELS_GROUP_NORM_TESTING_H_
#define PLANISH_SRC_NORM_CHANNELS_GROUP_NORM_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "planish/group_norm.h"
#include "src/norm/channels/columns_testing.h"

// Problems and the reference of group norm, for the tests of CPU and GPU.
namespace planish::tests::group_norm {

template <class T, class P = T>
struct Problem : tests::ChannelProblem<GroupNormOptions, T, P> {
  Problem(Shape of, int64_t groups_, bool affine = true, double mean = 0, double deviation = 1)
      : tests::ChannelProblem<GroupNormOptions, T, P>(of, affine, mean, deviation),
        groups(groups_) {}
  int64_t groups;

  /// Returns where element i of group g of sample b is.
  int64_t At(int64_t b, int64_t g, int64_t i) const {
    const Shape& sizes = this->shape;
    const int64_t c = ChannelOf(g, i), s = i % sizes.spatial;
    return this->options.channels_last ? (b * sizes.spatial + s) * sizes.channels + c
                                       : sizes.At(b, c, s);
  }
  int64_t ChannelOf(int64_t g, int64_t i) const {
    return g * (this->shape.channels / groups) + i / this->shape.spatial;
  }
  int64_t length() const { return this->shape.channels / groups * this->shape.spatial; }
};

template <class T, class P = T>
struct Result : tests::Outputs<T, P> {
  explicit Result(const Problem<T, P>& p)
      : tests::Outputs<T, P>(p.shape.total(), p.shape.batch * p.groups, p.shape.channels) {}
};

template <class Args, class T, class P>
Args WithGroups(Args args, const Problem<T, P>& p) {
  args.groups = p.groups;
  return WithSizes(args, p.shape);
}

template <class T, class P>
GroupNormForwardArgs<T, P> ForwardArgs(const Problem<T, P>& p, Result<T, P>& out) {
  return WithGroups(ForwardArrays<GroupNormForwardArgs<T, P>>(p, out), p);
}

template <class T, class P>
GroupNormBackwardArgs<T, P> BackwardArgs(const Problem<T, P>& p, Result<T, P>& out) {
  return WithGroups(BackwardArrays<GroupNormBackwardArgs<T, P>>(p, out), p);
}

/// Returns xhat of a group, by its equation.
template <class Scalar>
std::vector<Scalar> ReferenceXhat(const std::vector<Scalar>& x, double eps) {
  using std::sqrt;
  const Scalar n(static_cast<double>(x.size()));
  Scalar mean(0), var(0);
  for (const Scalar& value : x) mean += value / n;
  for (const Scalar& value : x) var += (value - mean) * (value - mean) / n;
  std::vector<Scalar> xhat;
  for (const Scalar& value : x) xhat.push_back((value - mean) / sqrt(var + Scalar(eps)));
  return xhat;
}

/// Checks that every output agrees with the reference within rounding errors. u is the unit
/// roundoff of the arithmetic.
template <class T, class P>
void ExpectAgreesWithReference(const Problem<T, P>& p, const Result<T, P>& out) {
  const Shape& shape = p.shape;
  SCOPED_TRACE(testing::Message() << shape << ", groups " << p.groups
                                  << (p.gain.empty() ? "" : ", affine")
                                  << (p.options.channels_last ? ", channels last" : ""));
  const int64_t length = p.length();
  const Real u = UnitRoundoff<Compute<T>>(), n = static_cast<Real>(length);
  // As in batch_norm_testing.h: sums are in C over 8 rows, or over up to 1024 elements in at least
  // 4 lanes, then in double. 4 sqrt(k) u covers four standard deviations of k additions.
  const Real additions = 256 + (std::is_same_v<T, double> ? n : Real{0});
  const Real sum_error = (4 * std::sqrt(additions) + 2) * u + n * 0x1p-53L;
  // The sum of squares about the shift is at most 4 times that about the mean.
  const Real statistic_error = 4 * sum_error;
  std::vector<Real> dgain(shape.channels), dbias(shape.channels), dgain_error(shape.channels),
      dbias_error(shape.channels);
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t g = 0; g < p.groups; ++g) {
      SCOPED_TRACE(testing::Message() << "group " << g << " of sample " << b);
      const int64_t saved = b * p.groups + g;
      std::vector<Real> x, dy, gains, dxhat;
      for (int64_t i = 0; i < length; ++i) {
        x.push_back(ToDouble(p.x[p.At(b, g, i)]));
        dy.push_back(ToDouble(p.dy[p.At(b, g, i)]));
        gains.push_back(p.gain.empty() ? 1 : ToDouble(p.gain[p.ChannelOf(g, i)]));
        dxhat.push_back(dy.back() * gains.back());
      }
      // Subtracting an element of the group preserves digits of the reference.
      const Real shift = x.back();
      for (Real& value : x) value -= shift;
      const auto normalize = [&](const auto& values) {
        return ReferenceXhat(values, p.options.eps);
      };
      const std::vector<Real> xhat = normalize(x);
      Real mean = 0, var = 0, abs_g = 0, abs_g_xhat = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        mean += x[i] / n;
        abs_g += std::abs(dxhat[i]) / n;
        abs_g_xhat += std::abs(dxhat[i] * xhat[i]) / n;
      }
      for (const Real value : x) var += (value - mean) * (value - mean) / n;
      const Real mean_error = 2 * std::sqrt(var) * sum_error;
      ASSERT_TRUE(Near((out.mean[saved] - shift) + out.mean_lo[saved], mean,
                       mean_error + u * std::abs(Real{out.mean_lo[saved]})));
      const Real rstd = 1 / std::sqrt(var + Real{p.options.eps});
      ASSERT_TRUE(Near(out.rstd[saved], rstd, rstd * (u + statistic_error)));
      const Real lo = std::abs(Real{out.mean_lo[saved]}) * rstd;
      const size_t step = std::max<size_t>(1, x.size() / 8);
      for (size_t i = 0; i < x.size(); ++i) {
        const auto element = static_cast<int64_t>(i);
        const int64_t at = p.At(b, g, element), c = p.ChannelOf(g, element);
        const Real gain = gains[i], bias = p.bias.empty() ? 0 : ToDouble(p.bias[c]);
        // xhat: a difference, a product, the rounding of the scale or rstd, and an addition.
        const Real xhat_error =
            (4 * u + statistic_error) * std::abs(xhat[i]) + mean_error * rstd + 2 * u * lo;
        const Real y = gain * xhat[i] + bias;
        const Real y_error = std::abs(gain) * xhat_error + u * (std::abs(y) + std::abs(bias));
        ASSERT_TRUE(Near(ToDouble(out.y[at]), y, y_error + StorageError<T>(std::abs(y) + y_error)))
            << "y of element " << i;
        const Real term = dy[i] * xhat[i];
        dgain[c] += term;
        dgain_error[c] += (sum_error + u) * std::abs(term) + std::abs(dy[i]) * xhat_error;
        dbias[c] += dy[i];
        dbias_error[c] += sum_error * std::abs(dy[i]);
        if (i % step != 0) continue;
        const Real dx = tests::ComplexDerivative(normalize, x, dxhat, i);
        // The product with the gain, two means with their errors and that of xhat, two
        // subtractions, and the scale.
        const Real error =
            rstd * ((statistic_error + 6 * u) *
                        (std::abs(dxhat[i]) + abs_g + std::abs(xhat[i]) * abs_g_xhat) +
                    sum_error * abs_g + std::abs(xhat[i]) * (sum_error + 4 * u) * abs_g_xhat +
                    (std::abs(xhat[i]) * abs_g + abs_g_xhat) * (mean_error * rstd + 2 * u * lo) +
                    std::abs(xhat[i]) * statistic_error * abs_g_xhat);
        ASSERT_TRUE(Near(ToDouble(out.dx[at]), dx, error + StorageError<T>(std::abs(dx) + error)))
            << "dx of element " << i;
      }
    }
  }
  for (int64_t c = 0; c < shape.channels; ++c) {
    ASSERT_TRUE(Near(ToDouble(out.dgain[c]), dgain[c],
                     dgain_error[c] + StorageError<P>(std::abs(dgain[c]) + dgain_error[c])));
    ASSERT_TRUE(Near(ToDouble(out.dbias[c]), dbias[c],
                     dbias_error[c] + StorageError<P>(std::abs(dbias[c]) + dbias_error[c])));
  }
}

}  // namespace planish::tests::group_norm

#endif  // PLANISH_SRC_NORM_CHANNELS_GROUP_NORM_TESTING_H_
