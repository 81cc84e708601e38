#ifndef PLANISH_LAB_ANALYSIS_ARENA_H_
#define PLANISH_LAB_ANALYSIS_ARENA_H_

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/analysis/statistics.h"
#include "lab/analysis/two_way.h"
#include "lab/run/results.h"

// The arena: norms at equal tuning (docs/arena.md). Tuning runs, which have seeds of their own,
// choose the learning rate of each entry by validation; runs with other seeds measure the entry at
// that rate. So the choice cannot profit from the values that are compared.
namespace planish::lab {

/// Range of the seeds of tuning runs, which nobody is likely to give to other runs.
inline constexpr int64_t kFirstTuningSeed = 1'000'001, kLastTuningSeed = 1'000'999;

/// Returns true for a tuning run.
inline bool IsTuningRun(const Run& run) {
  return run.config.seed >= kFirstTuningSeed && run.config.seed <= kLastTuningSeed;
}

/// Setting with the learning rate.
inline constexpr char kRateSetting[] = "lr";

/// Tuning of an entry at one rate.
struct RateTrial {
  double rate = 0;
  int runs = 0;      ///< that have ended
  int diverged = 0;  ///< of them
  double mean = 0;   ///< validation metric of the others at their best evaluation; 0 if none
};

/// Returns the trial of `runs`, the tuning runs of an entry at `rate`. Unfinished runs do not
/// count.
RateTrial TrialOf(double rate, const std::vector<const Run*>& runs);

/// Returns the index of the trial to choose: the one with the fewest diverged runs, of these the
/// one with the best mean, of equal ones the lowest rate. nullopt if no run of any trial finished.
std::optional<size_t> ChooseRate(const std::vector<RateTrial>& trials, bool lower_is_better);

/// Runs that differ only in rate and seed: a norm with its placement and other settings.
struct ArenaEntry {
  std::string label;              ///< "layer, peri, qk_norm"
  nlohmann::json settings;        ///< all but the rate, including the preset
  std::vector<RateTrial> trials;  ///< by rate, ascending
  std::optional<size_t> chosen;   ///< index in `trials`, once tuning is complete
  std::vector<const Run*> runs;   ///< that are compared: at the chosen rate
  SeedValues values;              ///< headline metric of the finished ones
  int diverged = 0;               ///< of them
  Estimate estimate;              ///< of `values`
  Estimate behind;                ///< this entry minus the first, paired by seed
  /// Least clear difference: distance of `behind` from 0 above which the entry is told apart from
  /// the first one; absent for fewer than two common seeds. The entries that are not told apart
  /// contain the truly best one with 95% confidence.
  std::optional<double> bound;
  bool is_told_apart = false;              ///< surely worse than the first
  std::optional<double> seconds_per_step;  ///< mean over the runs at the chosen rate

  double rate() const { return trials[*chosen].rate; }
  /// Returns true if the chosen rate is the lowest or highest that was tried.
  bool IsAtTheEdge() const { return *chosen == 0 || *chosen + 1 == trials.size(); }
};

/// Arena of one task on the same data, and one preset.
struct ArenaTask {
  const RunConfig* config = nullptr;      ///< of one of the runs: metrics and words
  const MetricSpec* chosen_by = nullptr;  ///< validation metric
  const MetricSpec* metric = nullptr;     ///< headline
  /// Ranked: best mean first. Entries with diverged runs follow, fewest first; then those without
  /// values.
  std::vector<ArenaEntry> entries;
  std::vector<double> rates;  ///< the grid: all rates that were tried
  int tuning_seeds = 0;       ///< most tuning runs of an entry at a rate
  int seeds = 0;              ///< most runs of an entry that are compared
};

/// Returns the interval over seeds and test items of an entry minus the first one; none for that
/// one.
TwoWayResult TwoWayBehind(const ArenaTask& arena, const ArenaEntry& entry);

/// Removes the tuning runs, and marks the others of a task, preset and data if all are at the rates
/// that these chose (Run::is_rate_tuned). They are then compared although their rates differ.
void KeepComparedRuns(std::vector<Run>& runs);

/// Returns the arenas of tasks that have tuning runs at several rates, ordered by task and preset.
/// Results point into `runs`.
std::vector<ArenaTask> FindArenas(const std::vector<Run>& runs);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_ARENA_H_
