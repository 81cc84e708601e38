#ifndef PLANISH_LAB_QUEUE_QUEUE_H_
#define PLANISH_LAB_QUEUE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/engine/sweep.h"
#include "lab/engine/task.h"
#include "lab/run/results.h"

// Queues of runs: which, in which order, and how long they take. `planish reproduce` and `planish
// sweep` plan them; runner.h trains them.
namespace planish::lab {

/// One run of a queue.
struct QueuedRun {
  size_t group = 0;  ///< of RunQueue::groups
  RunPlan plan;
  std::string variant;                 ///< value of ReportSpec::compare, such as the norm
  std::vector<std::string> arguments;  ///< of `planish`: "train", the task, its flags
  bool done = false;                   ///< set if its folder or an archive has a result
  double part_done = 0;                ///< completed fraction of an unfinished run, 0 to 1

  /// Returns a name like "rt small-ada-b64-s1".
  std::string Name() const;
};

/// Returns the runs of a sweep as members of `group`. `sweep.preset` must not be empty.
std::vector<QueuedRun> QueueSweep(const Task& task, const SweepRequest& sweep, size_t group);

/// Durations of runs in minutes: measured for a group and variant, else for the group, else its
/// reference value, else unknown.
class Estimates {
 public:
  /// `reference` has the minutes of each group, if known.
  explicit Estimates(std::vector<std::optional<double>> reference)
      : reference_(std::move(reference)), all_(reference_.size()), by_variant_(reference_.size()) {}

  void Add(const QueuedRun& run, double minutes);

  /// Returns the minutes of a whole run.
  std::optional<double> Minutes(const QueuedRun& run) const;
  /// Returns the minutes of a group's mean run.
  std::optional<double> Minutes(size_t group) const;
  bool Measured(size_t group) const { return all_[group].count > 0; }
  /// Returns the remaining minutes of a run.
  std::optional<double> Left(const QueuedRun& run) const;

 private:
  struct Mean {
    double sum = 0;
    int count = 0;
  };
  std::vector<std::optional<double>> reference_;
  std::vector<Mean> all_;
  std::vector<std::map<std::string, Mean>> by_variant_;
};

/// Results of runs, read from their folders and from the archives beside them. Each is read once,
/// although several queues ask for it.
class RunResults {
 public:
  /// What is done of a run.
  struct Found {
    bool done = false;
    double part_done = 0;             ///< QueuedRun::part_done
    std::optional<double> minutes{};  ///< of a finished run
  };

  /// A run that cannot be read counts as nothing done. Throws RunError if the folder of the
  /// archives exists and cannot be listed.
  const Found& Of(const QueuedRun& run);

 private:
  std::map<std::filesystem::path, Found> found_;                          // by folder
  std::map<std::filesystem::path, std::map<std::string, Run>> archived_;  // folder -> name -> run
};

struct RunQueue {
  std::vector<std::string> groups;  ///< names of groups of runs that read the same data
  std::vector<QueuedRun> runs;      ///< in the order of training
  Estimates estimates{{}};

  size_t Done() const;

  /// Reads the folders of the runs, and the archives beside them. Sets what is done, and adds the
  /// measured durations. A run that cannot be read counts as nothing done: `planish train` then
  /// fails with the reason. Throws RunError if a folder exists whose archives cannot be listed.
  void FindResults();
  /// Like FindResults, but reads only what `results` has not read yet.
  void FindResults(RunResults& results);

  /// Reads the folder of one of `runs`, which another process may have trained since. Returns true
  /// if the run is done; sets that, and adds its duration.
  bool FindResult(QueuedRun& run);
};

/// Schedule of unfinished runs in their order, each on the job that is free first. A run that would
/// end after `hours` is left out, and later ones are tried. A run of unknown duration always fits.
struct QueueSchedule {
  size_t runs = 0;     ///< runs that fit
  size_t left = 0;     ///< runs that do not fit
  size_t unknown = 0;  ///< runs that fit, of unknown duration
  double hours = 0;    ///< until the last run of known duration ends
};

QueueSchedule MakeSchedule(const RunQueue& queue, int jobs, std::optional<double> hours);

/// Run that is being trained. Times are in seconds.
struct RunningRun {
  size_t run = 0;  ///< index in RunQueue::runs
  double elapsed = 0;
  std::optional<double> left{};  ///< by its own speed, if known
};

/// Returns the seconds until the running and the `waiting` runs (indices) are done by `jobs`
/// processes. A run of unknown duration counts as the mean of the running ones. nullopt if that is
/// unknown, too.
std::optional<double> SecondsLeft(const RunQueue& queue, const std::vector<RunningRun>& running,
                                  const std::vector<size_t>& waiting, int jobs);

/// Returns text like "about 1.5 hours", "2 runs of unknown duration" or both, joined by "and".
std::string Duration(const QueueSchedule& schedule);

/// Returns a table for a terminal with a row for each group. A row has the group's `cells`, then
/// its runs, how many are done, minutes a run and hours left. `headings` names the cells; the first
/// two are aligned at the left.
std::string RenderQueue(const RunQueue& queue, const std::vector<std::string>& headings,
                        const std::vector<std::vector<std::string>>& cells);

}  // namespace planish::lab

#endif  // PLANISH_LAB_QUEUE_QUEUE_H_
