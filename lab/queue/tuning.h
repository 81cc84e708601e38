#ifndef PLANISH_LAB_QUEUE_TUNING_H_
#define PLANISH_LAB_QUEUE_TUNING_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/analysis/arena.h"
#include "lab/engine/sweep.h"
#include "lab/engine/task.h"
#include "lab/queue/queue.h"
#include "lab/run/results.h"

// Tuning of the learning rate: each entry, such as a norm, is trained at every rate of a grid with
// seeds of its own, and validation chooses its rate (lab/analysis/arena.h). `planish tune` and the
// arena share it.
namespace planish::lab {

/// Returns `points` rates from `low` to `high` at equal ratios, in the syntax of --set. `points`
/// must be at least 2, and 0 < low < high.
std::vector<std::string> LogGrid(double low, double high, int points);

/// Returns a request for each combination of the values of `request`, with one value for each
/// setting. The first setting varies slowest.
std::vector<SweepRequest> Combinations(const SweepRequest& request);

/// Runs of one entry.
class TuningEntry {
 public:
  /// `request` has a preset and one value for each setting, and not the rate. `task` must outlive
  /// this object.
  TuningEntry(const Task& task, SweepRequest request, size_t group)
      : task_(task), request_(std::move(request)), group_(group) {}

  const SweepRequest& request() const { return request_; }

  /// Returns the runs at `rate` with the seeds first_seed, first_seed + 1, ...
  std::vector<QueuedRun> RunsAt(const std::string& rate, int64_t first_seed, int seeds) const;

  /// Returns the tuning runs at `rate`.
  std::vector<QueuedRun> TuningRunsAt(const std::string& rate, int seeds) const {
    return RunsAt(rate, kFirstTuningSeed, seeds);
  }

 private:
  const Task& task_;
  SweepRequest request_;
  size_t group_;
};

/// Runs and archived runs below a folder by task and name, such as "rt/small-layer-b4096-s1".
class RunsByName {
 public:
  /// Reads the runs. Leaves out those that cannot be read.
  explicit RunsByName(const std::filesystem::path& out);

  /// Returns the run of the folder's task and name, or null.
  const Run* Find(const std::filesystem::path& folder) const;

 private:
  std::vector<Run> runs_;
  std::map<std::string, const Run*> by_name_;
};

/// Tuning of one entry.
struct Tuning {
  std::vector<RateTrial> trials;  ///< one for each rate
  bool is_complete = true;        ///< set if all runs have ended
  std::optional<size_t> chosen;   ///< index of the best rate, unless incomplete or all diverged

  /// Returns true if the chosen rate is the first or the last one.
  bool IsAtTheEdge() const { return chosen && (*chosen == 0 || *chosen + 1 == trials.size()); }
};

/// Returns true if lower values of the validation metric of `task` are better.
bool LowerIsBetter(const Task& task);

/// Returns the tuning of an entry at `rates`, ascending, from the runs that exist.
Tuning ReadTuning(const Task& task, const TuningEntry& entry, const std::vector<std::string>& rates,
                  int seeds, const RunsByName& found);

/// Returns the tuning that `runs` contain for the settings of a plan other than the rate. It has
/// no trials if there is none. Throws UsageError if the runs used different data.
Tuning FindTuning(const Task& task, const RunPlan& plan, const std::vector<Run>& runs);

/// Returns the rate of a trial in the syntax of --set.
std::string RateText(const RateTrial& trial);

}  // namespace planish::lab

#endif  // PLANISH_LAB_QUEUE_TUNING_H_
