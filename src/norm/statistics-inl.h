// Row statistics from row sums, in double, once for each row. Compiled once for each target, in
// namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_STATISTICS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_STATISTICS_INL_H_
#undef PLANISH_SRC_NORM_STATISTICS_INL_H_
#else
#define PLANISH_SRC_NORM_STATISTICS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "src/base/simd/simd.h"
#include "src/norm/rows/rows.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Sums of a row: forward, of d = x - shift and d^2; backward, of g and g * xhat.
template <class C>
struct LaneSums {
  C first, second;
};

struct RowSums {
  double first = 0;
  double second = 0;

  template <class Sums>
  HWY_INLINE void Add(const Sums& sums) {
    first += static_cast<double>(sums.first);
    second += static_cast<double>(sums.second);
  }
};

// Code that is compiled for no SIMD target also calls the scalar functions below. They are
// therefore not HWY_INLINE: compilers cannot force the inlining of a target's function into other
// code.

/// xhat = (x - mean) * rstd + offset. The offset accounts for mean_lo.
template <class C>
struct RowCoefficients {
  C mean = 0;
  C rstd = 0;
  C offset = 0;
};

/// Mean in two parts and biased variance, scaled by a power of two.
struct Statistics {
  double shift = 0;   // near the mean
  double offset = 0;  // mean = shift + offset / scale
  double var = 0;     // variance * scale^2
  double scale = 1;
};

inline double ToDouble(double value) { return value; }
inline double ToDouble(float value) { return value; }
inline double ToDouble(bfloat16 value) { return ToFloat(value); }
inline double ToDouble(float16 value) { return ToFloat(value); }

/// Computes the statistics of `cols` elements of type T in two passes in double. at(c) is element c
/// as a double. Elements of type double are scaled if their squares would overflow.
template <class T, class At>
inline Statistics TwoPassStatisticsAt(const At& at, int64_t cols, bool centre) {
  const auto n = static_cast<double>(cols);
  Statistics m;
  m.shift = centre ? at(0) : 0;
  if constexpr (std::is_same_v<T, double>) {
    double max = 0;
    for (int64_t c = 0; c < cols; ++c) max = std::max(max, std::abs(at(c) - m.shift));
    if (max > 0 && max <= std::numeric_limits<double>::max()) {
      m.scale = std::ldexp(1.0, std::clamp(-std::ilogb(max), -1000, 1000));
    }
  }
  if (centre) {
    // First the mean in double, then a correction about it.
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += (at(c) - m.shift) * m.scale;
    m.shift += sum / n / m.scale;
  }
  double first = 0, second = 0;
  for (int64_t c = 0; c < cols; ++c) {
    const double d = (at(c) - m.shift) * m.scale;
    first += d;
    second += d * d;
  }
  m.offset = centre ? first / n : 0;
  m.var = second / n - m.offset * m.offset;
  if (m.var < 0) m.var = 0;
  return m;
}

/// Computes the statistics of any row.
template <class T>
HWY_NOINLINE Statistics TwoPassStatistics(const T* x, int64_t cols, bool centre) {
  return TwoPassStatisticsAt<T>([x](int64_t c) { return ToDouble(x[c]); }, cols, centre);
}

/// Returns 1 / deviation, as the recipe defines the deviation.
inline double ReciprocalDeviation(const Statistics& m, Deviation deviation, double eps, double n) {
  // An overflowed variance gives NaN, not rstd = 0.
  if (!(m.var <= std::numeric_limits<double>::max())) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (deviation == Deviation::kUnbiasedPlusEps) {
    return m.scale / (std::sqrt(m.var * (n / (n - 1))) + eps * m.scale);
  }
  return m.scale / std::sqrt(m.var + eps * m.scale * m.scale);
}

template <class C>
inline RowCoefficients<C> CoefficientsOf(C mean, C mean_lo, C rstd) {
  // An input NaN can have any bits; conversion to 16 bits requires a plain NaN.
  if (rstd != rstd) rstd = std::numeric_limits<C>::quiet_NaN();
  return {mean, rstd, -mean_lo * rstd};
}

/// Range [MinSquare(eps), kMax] of mean squares that SumsAreAccurate accepts.
template <class C>
struct SquareBounds {
  static constexpr double kMax = std::is_same_v<C, double> ? 1e300 : 1e37;
  static constexpr double kMin = std::is_same_v<C, double> ? 1e-280 : 1e-30;
  // Squares far below eps do not affect rstd.
  static constexpr double MinSquare(double eps) { return eps >= 1e10 * kMin ? 0 : kMin; }
};

/// Returns whether sums in C are accurate enough. `square` is the mean of d^2, `var` is `square`
/// minus the squared mean of d.
template <class C>
inline bool SumsAreAccurate(double var, double square, double eps) {
  using Bounds = SquareBounds<C>;
  // False if the variance is a small difference of the sums (the shift is far from the mean), if
  // squares overflow, or for NaN. Also false if squares are close to underflow and not negligible
  // compared with eps.
  return var >= 0.25 * square && square <= Bounds::kMax && square >= Bounds::MinSquare(eps);
}

/// Like SumsAreAccurate above, for vectors of doubles.
template <class C, class D>
HWY_INLINE auto SumsAreAccurate(D d, hn::Vec<D> var, hn::Vec<D> square, double eps) {
  using Bounds = SquareBounds<C>;
  const auto accurate = hn::And(hn::Ge(var, hn::Mul(square, hn::Set(d, 0.25))),
                                hn::Le(square, hn::Set(d, Bounds::kMax)));
  return hn::And(accurate, hn::Ge(square, hn::Set(d, Bounds::MinSquare(eps))));
}

template <class T>
HWY_INLINE RowCoefficients<Compute<T>> SaveStatistics(const RowsForward<T>& args, int64_t r,
                                                      double mean, double rest, double rstd) {
  using C = Compute<T>;
  const C rounded = static_cast<C>(mean + rest), reciprocal = static_cast<C>(rstd);
  const C lo = static_cast<C>((mean - static_cast<double>(rounded)) + rest);
  if (args.mean) args.mean[r] = rounded;
  if (args.mean_lo) args.mean_lo[r] = lo;
  if (args.rstd) args.rstd[r] = reciprocal;
  return CoefficientsOf(rounded, lo, reciprocal);
}

/// Computes row r's statistics in two passes, saves them, and returns the coefficients of xhat.
template <class T>
HWY_NOINLINE RowCoefficients<Compute<T>> TwoPassCoefficients(const RowsForward<T>& args,
                                                             int64_t r) {
  const Statistics m = TwoPassStatistics(args.x + r * args.x_stride, args.cols, args.recipe.centre);
  const double rstd =
      ReciprocalDeviation(m, args.recipe.deviation, args.eps, static_cast<double>(args.cols));
  return SaveStatistics(args, r, m.shift, m.offset / m.scale, rstd);
}

/// Computes row r's statistics from its sums about `shift`, saves them, and returns the
/// coefficients of xhat. `reciprocal` is 1 / cols.
template <class T>
HWY_INLINE RowCoefficients<Compute<T>> FinishStatistics(const RowsForward<T>& args, int64_t r,
                                                        double shift, const RowSums& sums,
                                                        double reciprocal) {
  const double offset = sums.first * reciprocal, square = sums.second * reciprocal;
  const double var = square - offset * offset;
  if (!SumsAreAccurate<Compute<T>>(var, square, args.eps)) [[unlikely]]
    return TwoPassCoefficients(args, r);
  double rstd = 0;
  if (args.recipe.deviation == Deviation::kBiased) [[likely]] {
    rstd = 1 / std::sqrt(var + args.eps);
  } else {
    rstd = ReciprocalDeviation({.var = var}, args.recipe.deviation, args.eps,
                               static_cast<double>(args.cols));
  }
  return SaveStatistics(args, r, shift, offset, rstd);
}

/// Returns row r's coefficients of xhat from its saved statistics.
template <template <class> class Args, class T>
HWY_INLINE RowCoefficients<Compute<T>> SavedCoefficients(const Args<T>& args, int64_t r) {
  using C = Compute<T>;
  return CoefficientsOf(args.mean ? args.mean[r] : C{0}, args.mean_lo ? args.mean_lo[r] : C{0},
                        args.rstd[r]);
}

/// Constants of a row for dx = rstd * ((g - mean_g) - xhat * mean_g_xhat).
template <class C>
struct GradientCoefficients {
  RowCoefficients<C> coefficients;
  C mean_g = 0;
  C mean_g_xhat = 0;
};

/// Returns row r's constants from its sums of g and g * xhat.
template <class T>
HWY_INLINE GradientCoefficients<Compute<T>> FinishGradient(
    const RowsBackward<T>& args, int64_t r, const RowCoefficients<Compute<T>>& coefficients,
    const RowSums& sums, double reciprocal) {
  using C = Compute<T>;
  double mean_g = args.recipe.via_mean ? sums.first * reciprocal : 0;
  double mean_g_xhat = args.recipe.via_scale ? sums.second * reciprocal : 0;
  if (args.recipe.deviation == Deviation::kUnbiasedPlusEps) [[unlikely]] {
    // d(deviation)/dx = d / ((n - 1) * deviation) gives the factor n / (n - 1), and eps outside the
    // root the second factor.
    const auto n = static_cast<double>(args.cols);
    const double deviation = 1 / static_cast<double>(coefficients.rstd) - args.eps;
    mean_g_xhat *= deviation > 0 ? n / (n - 1) * ((deviation + args.eps) / deviation) : 0;
  }
  if (args.factors != nullptr) [[unlikely]] {
    const GradientFactors& factors = args.factors[r];
    mean_g_xhat *= factors.scale;
    mean_g = mean_g * factors.mean - factors.shift * mean_g_xhat;
  }
  return {coefficients, static_cast<C>(mean_g), static_cast<C>(mean_g_xhat)};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_STATISTICS_INL_H_
