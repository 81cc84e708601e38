#ifndef PLANISH_LAB_COMMANDS_RUNS_H_
#define PLANISH_LAB_COMMANDS_RUNS_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/engine/processes.h"
#include "lab/engine/sweep.h"
#include "lab/engine/task.h"
#include "lab/queue/queue.h"
#include "lab/run/results.h"

// Options and work that `planish train` and `planish tune` share: both train runs of one task.
namespace planish::lab {

/// Options of the runs of a task.
struct RunFlags {
  std::string task, preset, data, device = "cpu";
  std::map<std::string, std::optional<std::string>> options;  ///< of settings with an option
  std::vector<std::string> sets;                              ///< of --set
  std::filesystem::path out = "runs";
  int threads = 0;  ///< 0: all cores, divided by the jobs
  std::optional<int> jobs;
  double checkpoint_seconds = 60;
  bool json = false, quiet = false;
};

/// Adds TASK and the options that choose settings, data and folders.
void AddRunOptions(CLI::App& command, RunFlags& flags);

/// Adds the options of the training: threads, jobs, device and output.
void AddTrainingOptions(CLI::App& command, RunFlags& flags, const std::string& json_help);

/// Returns the request of the options, without seeds: with the task's first preset and with the
/// values that it compares, unless others are given. Throws UsageError for wrong options. `command`
/// begins the messages.
SweepRequest MakeRequest(const std::string& command, const Task& task, const RunFlags& flags);

/// Runs that have been trained, or were there.
struct TrainedRuns {
  int status = 0;                        ///< exit status of the command
  std::vector<std::optional<Run>> runs;  ///< of the queue; absent without a result
  int earlier = 0;                       ///< runs that were done before
  int diverged = 0;
};

/// Trains the runs of `queue`, which has one group of runs of `task`: one after the other in this
/// process, or --jobs at once, each in a process of its own. `summary` describes a run with a
/// result. Calls `on_run` for each run with a result, in the order of the queue. `processes` train
/// each run together; with --jobs it must be a single process.
TrainedRuns TrainRuns(const Task& task, RunQueue& queue, const RunFlags& flags,
                      Processes& processes, const std::function<std::string(const Run&)>& summary,
                      const std::function<void(const Run&)>& on_run);

/// Returns a queue of `runs` that are of one task.
RunQueue QueueOf(const Task& task, std::vector<QueuedRun> runs);

/// Returns a metric of a run's result with its label, such as "test error 2.31%", after the last
/// step. A metric that exists only at the evaluation that validation chose is that one's.
std::string FinalMetricText(const Run& run, const std::string& metric);

/// Returns a metric at the evaluation that validation chose, like FinalMetricText.
std::string BestMetricText(const Run& run, const std::string& metric);

}  // namespace planish::lab

#endif  // PLANISH_LAB_COMMANDS_RUNS_H_
