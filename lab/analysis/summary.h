#ifndef PLANISH_LAB_ANALYSIS_SUMMARY_H_
#define PLANISH_LAB_ANALYSIS_SUMMARY_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/analysis/statistics.h"
#include "lab/papers/paper_data.h"
#include "lab/run/results.h"

// What the runs say, as numbers. Report and table only put it into words. Everything here points
// into the runs that it was made from.
namespace planish::lab {

enum class Status { kFinished, kDiverged, kUnfinished };

Status StatusOf(const Run& run);

/// Where in a run a metric is read.
enum class Measure {
  kFinal,        ///< after the last step
  kBest,         ///< at the evaluation that validation chose
  kStepsToBest,  ///< the step of that evaluation
  kStepsTo,      ///< the step of the first evaluation at or beyond a target; claims only
  kCatchUp       ///< steps or seconds to what another group is at its best; claims only
};

/// Runs that differ in the seed alone.
struct Group {
  std::string value;             ///< of the compared setting
  std::vector<const Run*> runs;  ///< one a seed, ascending

  int CountOf(Status status) const;
};

/// Groups that differ in the compared setting alone: only these are set against each other.
struct Panel {
  std::string title;          ///< what sets it apart: "batch size 4"; empty when nothing does
  nlohmann::json settings;    ///< all but the compared one, preset among them
  std::vector<Group> groups;  ///< the baseline first

  /// The group with that value, or null.
  const Group* Find(std::string_view value) const;

  /// The configuration of one of the runs. All share data and all settings but the compared one.
  const RunConfig& config() const { return groups.front().runs.front()->config; }
};

/// Runs of one task on the same data.
struct Section {
  const RunConfig* config = nullptr;  ///< of the run started last: metrics, report and words
  std::vector<Panel> panels;
  std::vector<std::string> values;  ///< of the compared setting, the baseline first
  std::vector<const Run*> runs;     ///< that count, in the order of the panels
  std::vector<const Run*>
      left_out;  ///< a newer or more complete run has the same settings and seed
  std::vector<std::pair<std::string, std::string>> common;   ///< settings that all runs share
  std::vector<std::pair<std::string, std::string>> varying;  ///< setting -> its values, joined
  bool specs_differ = false;  ///< runs disagree about metrics or report

  /// The metric with that name, or null.
  const MetricSpec* Find(std::string_view metric) const;
  /// "norm layer": a value of the compared setting, named.
  std::string Named(std::string_view value) const;
  /// Index of a value in `values`.
  int IndexOf(std::string_view value) const;
};

/// Sections in the order of task and data.
std::vector<Section> Summarise(const std::vector<Run>& runs);

/// The measure by which findings compare: kBest when every finished run has it for the headline
/// metric, else kFinal.
Measure HeadlineMeasure(const Section& section);

/// Seed -> measure of each finished run that has it.
SeedValues Values(const Group& group, const std::string& metric, Measure measure);

/// Two groups on one measure.
struct Comparison {
  Estimate a;
  Estimate b;
  Estimate difference;  ///< a minus b, paired by seed
  int better = 0;       ///< 1: the interval is sure that a is better; -1: worse; 0: cannot tell
  int bounded = 0;      ///< pairs in which one side never reached the target (CompareSteps)
};

Comparison Compare(const Group& a, const Group& b, const MetricSpec& metric, Measure measure);

/// Steps to the first evaluation at or beyond `target`, of finished seeds; `a` and `b` are means
/// over the seeds that reached it. Where one side of a pair never did, it counts at its last step:
/// the least that its steps can be, so that the difference is never overstated. Pairs in which
/// neither did are left out.
Comparison CompareSteps(const Group& a, const Group& b, const MetricSpec& metric, double target);

/// What training is counted in.
enum class Effort { kSteps, kSeconds };

/// The same of the steps, or the seconds of training, that `a` takes to be as good as `b` is at the
/// evaluation that validation chose of it, seed by seed, against what `b` took to there.
Comparison CompareCatchUp(const Group& a, const Group& b, const MetricSpec& metric, Effort effort);

/// How soon a group is as good as another one at its best, by the metric of validation.
struct CatchUp {
  int count = 0;     ///< pairs of seeds in which it got there
  int of = 0;        ///< pairs of seeds; one that diverged never got there
  Estimate steps;    ///< as a share of the other's: 0.6 where it took 60% of its steps
  Estimate seconds;  ///< of training, likewise
};

CatchUp CatchUpWith(const Group& group, const Group& other, const MetricSpec& metric);

/// The metric by which validation chose the evaluations of the runs; null where they have none.
const MetricSpec* ChosenBy(const Section& section);

/// Steps and seconds to the first evaluation at or beyond a target.
struct Reached {
  int count = 0;  ///< seeds that reached it
  int of = 0;     ///< finished and diverged seeds
  Estimate steps;
  Estimate seconds;
};

Reached Reach(const Group& group, const MetricSpec& metric, double target);

/// What the measurement says about a published claim.
enum class Verdict { kAgrees, kDiffers, kCannotTell, kOtherData, kNoVerdict, kNotMeasured };

std::string_view VerdictText(Verdict verdict);

/// The verdict on a paper that runs with this evidence get when their interval is sure of the
/// sign, `holds` (1: the paper's, -1: the other one, 0: cannot tell). The only place that makes
/// verdicts of signs.
Verdict VerdictOf(Evidence evidence, int holds);

struct ClaimResult {
  const ClaimSpec* claim = nullptr;
  Verdict verdict = Verdict::kNotMeasured;
  const Panel* panel = nullptr;            ///< null when not measured
  Evidence evidence = Evidence::kVerdict;  ///< of the panel's runs for this claim
  Measure measure = Measure::kFinal;
  MetricSpec metric;      ///< of the numbers below; steps when the measure counts steps
  Comparison comparison;  ///< of the claim's `better` with its `worse`
};

/// One result for each panel that a claim speaks of, or one that is not measured.
std::vector<ClaimResult> JudgeClaims(const Section& section);

/// A metric over training.
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
  std::vector<Point> mean;   ///< where every seed that counts was evaluated
  int seeds = 0;             ///< that the mean is over
  std::vector<Seed> single;  ///< every seed
};

/// The mean is over finished seeds; while there are none, over unfinished ones.
Curve CurveOf(const Group& group, const std::string& metric);

/// Training cases a second over a whole run, or nothing before the first evaluation.
std::optional<double> CasesPerSecond(const Run& run);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_SUMMARY_H_
