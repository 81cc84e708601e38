#ifndef PLANISH_LAB_ANALYSIS_STATISTICS_H_
#define PLANISH_LAB_ANALYSIS_STATISTICS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace planish::lab {

/// A mean over seeds and how sure it is.
struct Estimate {
  int count = 0;
  double mean = 0;
  double min = 0;
  double max = 0;
  std::optional<double> half_width;  ///< of the 95% interval; absent below two values

  double low() const { return mean - half_width.value_or(0); }
  double high() const { return mean + half_width.value_or(0); }
};

/// Seed -> value of one measure.
using SeedValues = std::map<int64_t, double>;

/// Student's t at probability 0.975 (two-sided 95%). Throws RunError below one degree of freedom.
double StudentT(int degrees_of_freedom);

/// Mean, extremes and 95% t-interval; a count of 0 for no values.
Estimate EstimateMean(std::span<const double> values);
Estimate EstimateMean(const SeedValues& values);

/// EstimateMean of differences of values up to `largest` in size, without what rounding leaves: a
/// difference, and a spread, of 1e-12 of that is 0.
Estimate EstimateDifference(std::vector<double> differences, double largest);

/// Mean and interval of `a` minus `b` over the seeds that both have.
Estimate PairedDifference(const SeedValues& a, const SeedValues& b);

/// Returns the sign that the 95% interval is sure of, -1 or 1: 0 when it includes 0, when there is
/// none, and when its width is 0, since values that are all the same do not show how they vary.
int SureSign(const Estimate& estimate);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_STATISTICS_H_
