#ifndef PLANISH_LAB_REPORT_STATISTICS_H_
#define PLANISH_LAB_REPORT_STATISTICS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>

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

/// Mean and interval of `a` minus `b` over the seeds that both have.
Estimate PairedDifference(const SeedValues& a, const SeedValues& b);

/// The sign that the 95% interval is sure of: -1 or 1, or 0 when it includes 0 or does not exist.
int SureSign(const Estimate& estimate);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_STATISTICS_H_
