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

/// Value that is known to lie between bounds, such as a time that is read off a grid of evaluations
/// (interval censoring).
struct Bounded {
  double low = 0;
  double value = 0;  ///< as read: low <= value <= high
  double high = 0;

  bool IsExact() const { return low == high; }
};

/// Returns the value with itself as both bounds.
inline Bounded Exactly(double value) { return {value, value, value}; }

/// Returns weight * a, with swapped bounds for a negative weight; and the sum of a and b.
Bounded operator*(double weight, const Bounded& a);
Bounded operator+(const Bounded& a, const Bounded& b);

/// Returns EstimateMean of differences between values of magnitude at most `largest`. Differences
/// and spreads of at most 1e-12 * `largest` count as 0, because they are rounding errors. If some
/// are not exact, the interval contains the 95% t-interval of any values within the bounds, and is
/// symmetric about the mean of the values as read.
Estimate EstimateDifference(std::vector<Bounded> differences, double largest);

/// Returns mean and interval of `a` minus `b` over the seeds that both have.
Estimate PairedDifference(const SeedValues& a, const SeedValues& b);

/// Returns the estimate with the interval of another confidence than 95%.
Estimate AtConfidence(Estimate estimate, double confidence);

/// Returns the two-sided p-value of a true mean of 0, by Student's t: the 95% interval excludes 0
/// if it is below 0.05. nullopt if SureSign can never be sure: without an interval, or with one
/// without width.
std::optional<double> PValue(const Estimate& estimate);

/// p-values of a family of tests. Tests without one do not count.
using PValues = std::vector<std::optional<double>>;

/// Returns the values adjusted by Holm's method: those below 0.05 are all right with a probability
/// of 95% (Holm 1979).
PValues HolmAdjusted(const PValues& values);

/// Returns the values adjusted by Benjamini and Hochberg's method: of those below 0.05, at most 5%
/// are expected to be wrong (1995).
PValues FalseDiscoveryAdjusted(const PValues& values);

/// Returns the sign of a 95% interval that excludes 0: -1 or 1. Returns 0 if it includes 0, if
/// there is none, or if its width is 0, because equal values do not show how they vary.
int SureSign(const Estimate& estimate);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_STATISTICS_H_
