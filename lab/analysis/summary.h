#ifndef PLANISH_LAB_ANALYSIS_SUMMARY_H_
#define PLANISH_LAB_ANALYSIS_SUMMARY_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/analysis/statistics.h"
#include "lab/run/results.h"

// Numeric summary of runs; report and table put it into words. Results point into the runs.
namespace planish::lab {

enum class Status { kFinished, kDiverged, kUnfinished };

Status StatusOf(const Run& run);

/// Returns "finished", "diverged" or "unfinished".
std::string_view NameOf(Status status);

/// Point of a run at which a metric is read.
enum class Measure {
  kFinal,          ///< after the last step
  kBest,           ///< at the evaluation that validation chose
  kStepsToBest,    ///< the step of that evaluation
  kSecondsToBest,  ///< the seconds of training until then
  kStepsTo,        ///< the step of the first evaluation at or beyond a target; claims only
  kCatchUp         ///< steps or seconds to another group's best; claims only
};

/// Returns true for steps and seconds to a run's own best evaluation.
inline bool IsEffort(Measure measure) {
  return measure == Measure::kStepsToBest || measure == Measure::kSecondsToBest;
}

/// Runs that differ only in the seed.
struct Group {
  std::string value;             ///< of the compared setting
  std::vector<const Run*> runs;  ///< one per seed, ascending

  int CountOf(Status status) const;
};

/// Groups that differ only in the compared setting, and in their learning rates if these are tuned.
/// Only these are compared with each other.
struct Panel {
  std::string title;        ///< the settings that distinguish it, by SettingPhrase: "batch size 4"
  nlohmann::json settings;  ///< all but the compared one, including the preset
  std::vector<Group> groups;  ///< the baseline first

  /// Returns the group with that value, or null.
  const Group* Find(std::string_view value) const;

  /// Returns the configuration of one of the runs. All share data and all settings but the compared
  /// one.
  const RunConfig& config() const { return groups.front().runs.front()->config; }
};

/// Runs of one task on the same data, whose headline metric has the same unit.
struct Section {
  const RunConfig* config = nullptr;  ///< of the run started last: metrics, report and words
  /// Name of the data, with the unit if that tells sections apart: "tale, bits/byte".
  std::string data;
  std::vector<Panel> panels;
  std::vector<std::string> values;   ///< of the compared setting, the baseline first
  std::vector<const Run*> runs;      ///< runs that count, in the order of the panels
  std::vector<const Run*> left_out;  ///< superseded by a newer or more complete run
  /// Settings that all runs share, by SettingPhrase, without empty texts.
  std::vector<std::string> common;
  std::vector<std::pair<std::string, std::string>> varying;  ///< setting -> its values, joined
  bool specs_differ = false;  ///< set if runs disagree about metrics or report

  /// Returns the metric with that name, or null.
  const MetricSpec* Find(std::string_view metric) const;
  /// Returns a value of the compared setting with its name: "norm layer".
  std::string Named(std::string_view value) const;
  /// Returns the index of a value in `values`.
  int IndexOf(std::string_view value) const;
};

/// Returns the settings of a run and its preset, which also determines it.
nlohmann::ordered_json AllSettings(const RunConfig& config);

/// Returns the unit of the headline metric of a run's report (DifferenceUnit).
std::string HeadlineUnit(const RunConfig& config);

/// Returns the sections of `runs`, ordered by task, data and unit.
std::vector<Section> Summarize(const std::vector<Run>& runs);

/// Returns the measure of the findings: kBest if every finished run has it for the headline metric,
/// else kFinal.
Measure HeadlineMeasure(const Section& section);

/// Returns seed -> measure of each finished run that has it.
SeedValues ValuesOf(const Group& group, const std::string& metric, Measure measure);

/// Returns the mean training time of the finished runs in seconds.
Estimate TrainingSeconds(const Group& group);

/// Returns true if a finished run of the group has the measure. For kStepsTo it must have been
/// evaluated; for kCatchUp it must have a best evaluation.
bool HasMeasure(const Group& group, const MetricSpec& metric, Measure measure);

/// Comparison of two groups on one measure.
struct Comparison {
  Estimate a;
  Estimate b;
  Estimate difference;  ///< a minus b, paired by seed
  int better = 0;       ///< 1: a is surely better; -1: surely worse; 0: cannot tell
  int bounded = 0;      ///< pairs in which one side never reached the target (CompareSteps)
};

/// Compares two groups. The best model occurs between the evaluations before and after the best
/// one, so the interval of steps and seconds to it contains all that these allow.
Comparison Compare(const Group& a, const Group& b, const MetricSpec& metric, Measure measure);

/// Like Compare, for the sum of weight * value over two or more groups. `a` and `b` are the first
/// two.
Comparison CompareSum(const std::vector<const Group*>& groups, const std::vector<double>& weights,
                      const MetricSpec& metric, Measure measure);

/// Compares the steps to the first evaluation at or beyond `target`, of finished seeds. `a` and `b`
/// are means over the seeds that reached it. The interval accounts for a crossing anywhere since
/// the evaluation before. A side of a pair that never reached it counts with its last step, a lower
/// bound, so the difference is never overstated. Pairs in which neither did are left out.
Comparison CompareSteps(const Group& a, const Group& b, const MetricSpec& metric, double target);

/// Unit in which training is counted.
enum class Effort { kSteps, kSeconds };

/// Like CompareSteps, but the target is, seed by seed, the evaluation of `b` that validation chose.
/// Compares the steps or seconds of training that `a` and `b` take to reach it.
Comparison CompareCatchUp(const Group& a, const Group& b, const MetricSpec& metric, Effort effort);

/// Cost for a group to match another group's best evaluation on the validation metric.
struct CatchUp {
  int count = 0;     ///< pairs of seeds in which it matched
  int of = 0;        ///< pairs of seeds; one that diverged never matched
  Estimate steps;    ///< ratio to the other group's steps: 0.6 means 60% of them
  Estimate seconds;  ///< ratio to the other group's seconds of training
};

CatchUp CatchUpWith(const Group& group, const Group& other, const MetricSpec& metric);

/// Returns the metric by which validation chose the runs' evaluations; null if they have none.
const MetricSpec* ChosenBy(const Section& section);

/// Steps and seconds to the first evaluation at or beyond a target.
struct Reached {
  int count = 0;  ///< seeds that reached it
  int of = 0;     ///< finished and diverged seeds
  Estimate steps;
  Estimate seconds;
};

Reached Reach(const Group& group, const MetricSpec& metric, double target);

/// Metric over training.
struct Curve {
  struct Point {
    int64_t step = 0;
    double seconds = 0;  ///< mean over seeds
    Estimate value;
  };
  struct Seed {
    const Run* run = nullptr;
    std::vector<Point> points;
  };
  std::vector<Point> mean;   ///< at steps where every counted seed was evaluated
  int seeds = 0;             ///< number of seeds in the mean
  std::vector<Seed> single;  ///< every seed
};

/// Returns the curve of a group. The mean is over finished seeds, or over unfinished ones if none
/// has finished.
Curve CurveOf(const Group& group, const std::string& metric);

/// Smallest share of the CPU time of its like at which the timing of a run counts as undisturbed.
inline constexpr double kMinCpuShare = 0.9;

/// Load of the machine by other programs during a run.
enum class OtherLoad { kUnknown, kNone, kDisturbed };

/// Returns whether other programs took CPU time from finished runs of a group. The CPU time of each
/// is compared with its training time: a run is disturbed if it got less than kMinCpuShare of a
/// CPU, or of the CPU time per second that another run of the group on as many threads got. Unknown
/// if a run has no CPU time.
OtherLoad OtherLoadOf(const Group& group);

/// Returns training cases per second over a whole run, or nullopt before the first evaluation.
std::optional<double> CasesPerSecond(const Run& run);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_SUMMARY_H_
