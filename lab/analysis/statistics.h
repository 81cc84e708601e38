#ifndef PLANISH_LAB_ANALYSIS_STATISTICS_H_
#define PLANISH_LAB_ANALYSIS_STATISTICS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace planish::lab {

/// Mean over seeds with its uncertainty.
struct Estimate {
  int count = 0;
  double mean = 0;
  double min = 0;
  double max = 0;
  std::optional<double> half_width;  ///< of the 95% interval; absent for fewer than two values

  double low() const { return mean - half_width.value_or(0); }
  double high() const { return mean + half_width.value_or(0); }
};

/// Seed -> value of one measure.
using SeedValues = std::map<int64_t, double>;

/// Returns t such that |T| < t with probability `confidence`, where T has Student's distribution.
/// Throws RunError below one degree of freedom, and unless `confidence` is between 0 and 1.
double StudentT(int degrees_of_freedom, double confidence = 0.95);

/// Returns mean, extremes and 95% t-interval; a count of 0 for no values.
Estimate EstimateMean(std::span<const double> values);
Estimate EstimateMean(const SeedValues& values);

/// Returns EstimateMean of differences between values of magnitude at most `largest`. Differences
/// and spreads of at most 1e-12 * `largest` count as 0, because they are rounding errors.
Estimate EstimateDifference(std::vector<double> differences, double largest);

/// Returns mean and interval of `a` minus `b` over the seeds that both have.
Estimate PairedDifference(const SeedValues& a, const SeedValues& b);

/// Returns the sign of a 95% interval that excludes 0: -1 or 1. Returns 0 if it includes 0, if
/// there is none, or if its width is 0, because equal values do not show how they vary.
int SureSign(const Estimate& estimate);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_STATISTICS_H_
