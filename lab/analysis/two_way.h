#ifndef PLANISH_LAB_ANALYSIS_TWO_WAY_H_
#define PLANISH_LAB_ANALYSIS_TWO_WAY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/analysis/summary.h"
#include "lab/run/item_metrics.h"

// Intervals over seeds and test items. Both are samples: with other seeds or another test set of
// this size the values would have been others (docs/reproduction.md#seeds-and-test-items).
namespace planish::lab {

/// Interval that a two-way bootstrap gives, in the unit of the metric.
struct TwoWayInterval {
  double low = 0;
  double high = 0;
  int seeds = 0;
  int64_t items = 0;  ///< of the test sets of all seeds, each counted once

  bool Includes(double value) const { return low <= value && value <= high; }
};

/// Results of one run on items, for TwoWayBootstrap.
struct ItemResults {
  std::vector<int64_t> items;               ///< ascending indices, equal for equal items
  std::vector<std::vector<int64_t>> parts;  ///< PartsOf: each has an element for each item
};

/// Options of TwoWayBootstrap.
struct TwoWayOptions {
  int resamples = 2000;
  uint64_t seed = 1;  ///< of the generator: equal arguments give equal intervals
};

/// Returns the 95% interval of the sum of weight * metric, averaged over seeds. `runs[k][s]` has
/// the term with weights[k] at seed s; all runs of a seed have the same items.
///
/// Draws as many seeds, and as many items, as there are, with replacement, and computes the sum
/// again for each: the mean over the drawn seeds, and the mean of the metrics of the drawn items.
/// The interval has the central 95% of the sum of both deviations. Those of the seeds are widened
/// by t / z * sqrt(S / (S - 1)), so that seeds alone give about Student's interval for S seeds.
/// What depends on seed and item together is in both deviations, so the interval tends to be too
/// wide, by a factor of sqrt(2) at most. Drawing both at once would count it three times (Owen
/// 2007, The pigeonhole bootstrap).
///
/// nullopt for fewer than two seeds or items, and if half of the draws have no metric.
std::optional<TwoWayInterval> TwoWayBootstrap(const std::vector<std::vector<ItemResults>>& runs,
                                              const std::vector<double>& weights,
                                              double (*metric)(std::span<const int64_t> sums),
                                              const TwoWayOptions& options = {});

/// Interval over seeds and items, or why there is none.
struct TwoWayResult {
  std::optional<TwoWayInterval> interval;
  std::string left_out;  ///< the reason; empty for steps, seconds and fewer than two seeds
};

/// Returns the interval of the sum of weight * metric over groups of a panel, over the seeds that
/// finished in all groups. Predictions are those of the evaluations that validation chose. So they
/// give an interval for kFinal only if these are the last ones in all runs, and none for steps and
/// seconds.
TwoWayResult TwoWayOf(const std::vector<const Group*>& groups, const std::vector<double>& weights,
                      const MetricSpec& metric, Measure measure = Measure::kBest);

/// Returns the interval of `a` minus `b`.
TwoWayResult TwoWayDifference(const Group& a, const Group& b, const MetricSpec& metric,
                              Measure measure = Measure::kBest);

/// Finished runs that TwoWayOf leaves out.
struct LeftOutRuns {
  int64_t all = 0;                  ///< runs that could have predictions
  int64_t missing = 0;              ///< runs without any
  std::vector<std::string> faults;  ///< a sentence for each run with predictions of no use

  LeftOutRuns& operator+=(const LeftOutRuns& more);

  /// Returns sentences about them; empty if none is left out.
  std::vector<std::string> Text() const;
};

/// Returns those of groups. A metric without predictions has none.
LeftOutRuns LeftOutOf(const std::vector<const Group*>& groups, const MetricSpec& metric);

/// Returns the groups of a panel.
std::vector<const Group*> GroupsOf(const Panel& panel);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_TWO_WAY_H_
