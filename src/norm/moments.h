#ifndef PLANISH_SRC_NORM_MOMENTS_H_
#define PLANISH_SRC_NORM_MOMENTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "src/norm/rows.h"

// From sums over a row to what its numbers are mapped with: once a row, in double.
namespace planish::internal {

/// Of a forward row: the sums of d = x - shift and of d^2. Of a backward row: of g and g * xhat.
struct RowSums {
  double first = 0;
  double second = 0;
};

/// xhat = (x - mean) * rstd + offset. The offset is the part of the mean that its type cannot hold.
template <class C>
struct RowMap {
  C mean = 0;
  C rstd = 0;
  C offset = 0;
};

/// A mean in two parts and the biased variance, both times a power of two.
struct Moments {
  double shift = 0;   // near the mean
  double offset = 0;  // mean = shift + offset / scale
  double var = 0;     // variance * scale^2
  double scale = 1;
};

inline double ToDouble(double value) { return value; }
inline double ToDouble(float value) { return value; }
inline double ToDouble(bfloat16 value) { return ToFloat(value); }
inline double ToDouble(float16 value) { return ToFloat(value); }

/// The moments of `cols` numbers of type T, of which at(c) is one as a double, in two sweeps in
/// double. Squares of floats fit a double; doubles are scaled where theirs would not.
template <class T, class At>
Moments CarefulMomentsAt(const At& at, int64_t cols, bool centre) {
  const auto n = static_cast<double>(cols);
  Moments m;
  m.shift = centre ? at(0) : 0;
  if constexpr (std::is_same_v<T, double>) {
    double most = 0;
    for (int64_t c = 0; c < cols; ++c) most = std::max(most, std::abs(at(c) - m.shift));
    if (most > 0 && most <= std::numeric_limits<double>::max()) {
      m.scale = std::ldexp(1.0, std::clamp(-std::ilogb(most), -1000, 1000));
    }
  }
  if (centre) {
    // The mean to double's digits, then once more about it.
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

/// The moments of any row.
template <class T>
Moments CarefulMoments(const T* x, int64_t cols, bool centre) {
  return CarefulMomentsAt<T>([x](int64_t c) { return ToDouble(x[c]); }, cols, centre);
}

/// 1 over the deviation that a recipe divides by.
inline double ReciprocalDeviation(const Moments& m, Deviation deviation, double eps, double n) {
  // A variance that has overflowed must not pass for a large one.
  if (!(m.var <= std::numeric_limits<double>::max())) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (deviation == Deviation::kUnbiasedPlusEps) {
    return m.scale / (std::sqrt(m.var * (n / (n - 1))) + eps * m.scale);
  }
  return m.scale / std::sqrt(m.var + eps * m.scale * m.scale);
}

template <class C>
RowMap<C> MapOf(C mean, C mean_lo, C rstd) {
  // A NaN given from outside may have any bits, and one that rounds to 16 of them must be plain.
  if (rstd != rstd) rstd = std::numeric_limits<C>::quiet_NaN();
  return {mean, rstd, -mean_lo * rstd};
}

/// Moments from the sums of `cols` numbers about `shift`, in C, or else those of careful().
template <class C, class Careful>
Moments MomentsOf(double shift, const RowSums& sums, int64_t cols, double eps,
                  const Careful& careful) {
  constexpr double kMost = std::is_same_v<C, double> ? 1e300 : 1e37;
  constexpr double kLeast = std::is_same_v<C, double> ? 1e-280 : 1e-30;
  const auto n = static_cast<double>(cols);
  const double offset = sums.first / n, square = sums.second / n;
  const Moments m{.shift = shift, .offset = offset, .var = square - offset * offset};
  // The sums are in the type's own precision. They serve unless the variance is a small difference
  // of theirs, which takes a shift far off the mean, or squares overflowed, or squares that matter
  // beside eps came near underflow. NaN does not serve either.
  const bool serve =
      m.var >= 0.25 * square && square <= kMost && (square >= kLeast || eps >= 1e10 * kLeast);
  if (!serve) [[unlikely]]
    return careful();
  return m;
}

/// Saves moments at index i, in C, of the arrays that are given, and gives the map.
template <class C>
RowMap<C> SaveMoments(const Moments& m, double rstd, int64_t i, C* means, C* means_lo, C* rstds) {
  const double rest = m.offset / m.scale;
  const C mean = static_cast<C>(m.shift + rest);
  const C mean_lo = static_cast<C>((m.shift - static_cast<double>(mean)) + rest);
  const C rounded = static_cast<C>(rstd);
  if (means) means[i] = mean;
  if (means_lo) means_lo[i] = mean_lo;
  if (rstds) rstds[i] = rounded;
  return MapOf(mean, mean_lo, rounded);
}

/// Row r's moments from its sums about `shift`: saves them and gives the map.
template <class T>
RowMap<Compute<T>> FinishMoments(const RowsForward<T>& args, int64_t r, double shift,
                                 const RowSums& sums) {
  const Moments m = MomentsOf<Compute<T>>(shift, sums, args.cols, args.eps, [&] {
    return CarefulMoments(args.x + r * args.x_stride, args.cols, args.recipe.centre);
  });
  const double rstd =
      ReciprocalDeviation(m, args.recipe.deviation, args.eps, static_cast<double>(args.cols));
  return SaveMoments(m, rstd, r, args.mean, args.mean_lo, args.rstd);
}

/// Row r's map from the moments that forward saved.
template <class T>
RowMap<Compute<T>> SavedMoments(const RowsBackward<T>& args, int64_t r) {
  using C = Compute<T>;
  return MapOf(args.mean ? args.mean[r] : C{0}, args.mean_lo ? args.mean_lo[r] : C{0},
               args.rstd[r]);
}

/// The constants of a row that dx needs: dx = rstd * ((g - mean_g) - xhat * mean_g_xhat).
template <class C>
struct GradientMap {
  RowMap<C> map;
  C mean_g = 0;
  C mean_g_xhat = 0;
};

template <class T>
GradientMap<Compute<T>> FinishGradient(const RowsBackward<T>& args, const RowMap<Compute<T>>& map,
                                       const RowSums& sums) {
  using C = Compute<T>;
  const auto n = static_cast<double>(args.cols);
  double factor = args.recipe.via_scale ? 1 / n : 0;
  if (args.recipe.deviation == Deviation::kUnbiasedPlusEps) {
    // d(deviation)/dx = d / ((n - 1) * deviation): n / (n - 1) times, and eps beside the root.
    const double deviation = 1 / static_cast<double>(map.rstd) - args.eps;
    factor = deviation > 0 ? 1 / (n - 1) * ((deviation + args.eps) / deviation) : 0;
  }
  return {map, static_cast<C>(args.recipe.via_mean ? sums.first / n : 0),
          static_cast<C>(sums.second * factor)};
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_MOMENTS_H_
