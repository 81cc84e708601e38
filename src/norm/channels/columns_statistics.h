#ifndef PLANISH_SRC_NORM_CHANNELS_COLUMNS_STATISTICS_H_
#define PLANISH_SRC_NORM_CHANNELS_COLUMNS_STATISTICS_H_

#include <cstdint>

#include "src/base/simd/simd.h"
#include "src/norm/statistics-inl.h"

// Functions of statistics-inl.h for code that is compiled once, because work per channel needs no
// vectors. Must not be included in files that Highway compiles for each target.
namespace planish::internal {

using HWY_NAMESPACE::CoefficientsOf;
using HWY_NAMESPACE::FinishGradient;
using HWY_NAMESPACE::GradientCoefficients;
using HWY_NAMESPACE::ReciprocalDeviation;
using HWY_NAMESPACE::RowCoefficients;
using HWY_NAMESPACE::RowSums;
using HWY_NAMESPACE::Statistics;
using HWY_NAMESPACE::ToDouble;
using HWY_NAMESPACE::TwoPassStatistics;
using HWY_NAMESPACE::TwoPassStatisticsAt;

/// Computes statistics from sums in C about `shift`; calls two_pass() if the sums are too
/// inaccurate. `reciprocal` is 1 / count.
template <class C, class TwoPass>
Statistics StatisticsOf(double shift, const RowSums& sums, double reciprocal, double eps,
                        const TwoPass& two_pass) {
  const double offset = sums.first * reciprocal, square = sums.second * reciprocal;
  const double var = square - offset * offset;
  if (!HWY_NAMESPACE::SumsAreAccurate<C>(var, square, eps)) [[unlikely]]
    return two_pass();
  return {.shift = shift, .offset = offset, .var = var};
}

/// Saves the statistics at index i of the arrays that are not null, and returns the coefficients of
/// xhat.
template <class C>
RowCoefficients<C> SaveStatistics(const Statistics& m, double rstd, int64_t i, C* means,
                                  C* means_lo, C* rstds) {
  const double rest = m.offset / m.scale;
  const C mean = static_cast<C>(m.shift + rest);
  const C mean_lo = static_cast<C>((m.shift - static_cast<double>(mean)) + rest);
  const C rounded = static_cast<C>(rstd);
  if (means) means[i] = mean;
  if (means_lo) means_lo[i] = mean_lo;
  if (rstds) rstds[i] = rounded;
  return CoefficientsOf(mean, mean_lo, rounded);
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_COLUMNS_STATISTICS_H_
