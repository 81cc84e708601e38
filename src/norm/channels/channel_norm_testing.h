#ifndef PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_TESTING_H_
#define PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "planish/channel_norm.h"
#include "src/norm/channels/columns_testing.h"
#include "src/norm/recipe.h"
#include "src/norm/reference.h"

// Problems and the reference of norms over channels, for the tests of CPU and GPU.
namespace planish::tests::channel_norm {

template <class T, class P = T>
struct Problem : tests::ChannelProblem<NormOptions, T, P> {
  Problem(Norm n, Shape of, double mean = 0, double deviation = 1)
      : tests::ChannelProblem<NormOptions, T, P>(of, IsAffine(n), mean, deviation), norm(n) {}

  Norm norm;
};

template <class T, class P = T>
struct Result : tests::Outputs<T, P> {
  explicit Result(const Problem<T, P>& p)
      : tests::Outputs<T, P>(p.shape.total(), p.shape.positions(), p.shape.channels) {}
};

template <class T, class P>
ChannelNormForwardArgs<T, P> ForwardArgs(const Problem<T, P>& p, Result<T, P>& out) {
  return WithSizes(ForwardArrays<ChannelNormForwardArgs<T, P>>(p, out), p.shape);
}

template <class T, class P>
ChannelNormBackwardArgs<T, P> BackwardArgs(const Problem<T, P>& p, Result<T, P>& out) {
  auto args = WithSizes(BackwardArrays<ChannelNormBackwardArgs<T, P>>(p, out), p.shape);
  if (!IsAffine(p.norm)) args.dgain = args.dbias = nullptr;
  return args;
}

/// Returns the channels at one position.
template <class T>
std::vector<Real> At(const Shape& shape, const std::vector<T>& values, int64_t b, int64_t s) {
  std::vector<Real> row;
  for (int64_t c = 0; c < shape.channels; ++c) row.push_back(ToDouble(values[shape.At(b, c, s)]));
  return row;
}

/// Sums down a column are in C over 8 rows (backward: 2), then in double; sums along a row of a
/// tile have up to 1024 / 4 additions. Additions have independent errors of u: 4 sqrt(k) u covers
/// four standard deviations of k. Terms have 2 u. For doubles the sums in double also count.
template <class T>
Real SumError(Real additions, Real all) {
  if (std::is_same_v<T, double>) additions += all;
  return (4 * std::sqrt(additions) + 2) * UnitRoundoff<Compute<T>>() + all * 0x1p-53L;
}

/// Checks that every output agrees with the reference within rounding errors. u is the unit
/// roundoff of the arithmetic.
template <class T, class P>
void ExpectAgreesWithReference(const Problem<T, P>& p, const Result<T, P>& out) {
  SCOPED_TRACE(testing::Message() << p.shape << " norm " << static_cast<int>(p.norm));
  const internal::Recipe recipe = internal::RecipeOf(p.norm);
  const internal::ReferenceOptions options{p.options.eps, p.options.scale, p.options.slope};
  const Shape& shape = p.shape;
  const Real u = UnitRoundoff<Compute<T>>(), n = static_cast<Real>(shape.channels);
  const Real sum_error = SumError<T>(8, n);
  // The sum of squares about the shift is at most 4 times that about the mean.
  const Real statistic_error = 4 * sum_error;
  // AdaNorm's factors and their derivatives are less than 2 for values up to 5 deviations.
  const Real factor = recipe.output == internal::Output::kAdaptive ? 2 : 1;
  std::vector<Real> gain(shape.channels, 1), bias(shape.channels, 0);
  for (size_t c = 0; c < gain.size(); ++c) {
    if (!p.gain.empty()) gain[c] = ToDouble(p.gain[c]);
    if (!p.bias.empty()) bias[c] = ToDouble(p.bias[c]);
  }
  std::vector<Real> dgain(shape.channels), dbias = dgain, dgain_error = dgain, dbias_error = dgain;
  const Real total_error = SumError<T>(256, static_cast<Real>(shape.positions()));
  for (int64_t b = 0; b < shape.batch; ++b) {
    for (int64_t s = 0; s < shape.spatial; ++s) {
      const int64_t position = b * shape.spatial + s;
      std::vector<Real> x = At(shape, p.x, b, s);
      const std::vector<Real> dy = At(shape, p.dy, b, s);
      // Subtracting an element of the row preserves digits of the reference.
      const Real shift = recipe.centre ? x.back() : 0;
      for (Real& value : x) value -= shift;
      const std::vector<Real> xhat = internal::ReferenceXhat(recipe, x, p.options.eps);
      Real mean = 0, square = 0, abs_g = 0, abs_g_xhat = 0;
      for (size_t c = 0; c < x.size(); ++c) {
        mean += x[c] / n;
        abs_g += std::abs(gain[c] * dy[c]) / n;
        abs_g_xhat += std::abs(gain[c] * dy[c] * xhat[c]) / n;
      }
      if (!recipe.centre) mean = 0;
      for (const Real value : x) square += (value - mean) * (value - mean) / n;
      const Real rstd = internal::ReferenceRstd(recipe, x, mean, p.options.eps);
      const Real mean_error = recipe.centre ? 2 * std::sqrt(square) * sum_error : 0;
      const Real lo = std::abs(Real{out.mean_lo[position]});
      ASSERT_TRUE(
          Near((out.mean[position] - shift) + out.mean_lo[position], mean, mean_error + u * lo));
      ASSERT_TRUE(Near(out.rstd[position], rstd, rstd * (u + statistic_error)));
      for (size_t c = 0; c < x.size(); ++c) {
        const auto at = shape.At(b, static_cast<int64_t>(c), s);
        // xhat: a difference, a product, the rounding of rstd, and an addition.
        const Real xhat_error =
            (4 * u + statistic_error) * std::abs(xhat[c]) + (mean_error + 2 * u * lo) * rstd;
        const Real y = internal::ReferenceOutput(recipe, options, xhat[c], gain[c], bias[c]);
        const Real y_error =
            factor * std::abs(gain[c]) * (xhat_error + u * std::abs(xhat[c])) + u * std::abs(y);
        ASSERT_TRUE(Near(ToDouble(out.y[at]), y, y_error + StorageError<T>(std::abs(y) + y_error)))
            << "y of channel " << c << ", position " << position;
        dgain[c] += dy[c] * xhat[c];
        dbias[c] += dy[c];
        dgain_error[c] +=
            (total_error + 2 * u) * std::abs(dy[c] * xhat[c]) + xhat_error * std::abs(dy[c]);
        dbias_error[c] += total_error * std::abs(dy[c]);
      }
      const size_t step = std::max<size_t>(1, x.size() / 4);
      for (size_t c = static_cast<size_t>(position) % step; c < x.size(); c += step) {
        const auto at = shape.At(b, static_cast<int64_t>(c), s);
        const Real dx = internal::ReferenceDx(recipe, options, x, gain, dy, c);
        // g and xhat before and after the sums, which have errors; two subtractions and two
        // products.
        const Real error =
            factor * rstd *
            ((5 * u + statistic_error) * std::abs(gain[c] * dy[c]) +
             (sum_error + 6 * u + statistic_error) * abs_g +
             (sum_error + 16 * u + 3 * statistic_error) * std::abs(xhat[c]) * abs_g_xhat +
             (mean_error + 2 * u * lo) * rstd * (abs_g_xhat + std::abs(xhat[c]) * abs_g));
        ASSERT_TRUE(Near(ToDouble(out.dx[at]), dx, error + StorageError<T>(std::abs(dx) + error)))
            << "dx of channel " << c << ", position " << position;
      }
    }
  }
  if (recipe.output != internal::Output::kAffine) return;
  for (size_t c = 0; c < dgain.size(); ++c) {
    ASSERT_TRUE(Near(ToDouble(out.dgain[c]), dgain[c],
                     dgain_error[c] + StorageError<P>(std::abs(dgain[c]) + dgain_error[c])))
        << "dgain, channel " << c;
    ASSERT_TRUE(Near(ToDouble(out.dbias[c]), dbias[c],
                     dbias_error[c] + StorageError<P>(std::abs(dbias[c]) + dbias_error[c])))
        << "dbias, channel " << c;
  }
}

}  // namespace planish::tests::channel_norm

#endif  // PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_TESTING_H_
