#ifndef PLANISH_LAB_COMMANDS_QUEUE_H_
#define PLANISH_LAB_COMMANDS_QUEUE_H_

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/queue/queue.h"

// Options and work that `planish reproduce` and `planish sweep` share: both train a queue of runs.
namespace planish::lab {

/// Options of a queue.
struct QueueFlags {
  std::string data;
  std::string device = "cpu";
  std::optional<double> hours;
  std::optional<int> jobs, threads;
  bool dry_run = false, quiet = false;
  /// Without --threads: true divides the cores among the jobs, false gives each run one thread, so
  /// that results have the same bits on every machine.
  bool divides_cores = false;

  /// Returns the number of processes at once: --jobs, else one for each core, or fewer if each has
  /// several --threads.
  int Jobs() const;
  /// Returns the arguments that every `planish train` of the queue gets.
  std::vector<std::string> TrainArguments() const;
};

/// Adds the options to `command`.
void AddQueueOptions(CLI::App& command, QueueFlags& flags);

/// Prints the plan, which `table` shows, with its schedule. Trains the queue unless --dry-run is
/// given, and writes out/report.html. Returns the exit status.
/// With `next_stage`, trains the queues that it returns in place of `queue`, until it returns one
/// without runs, or a stage stays unfinished.
int TrainAndReport(RunQueue& queue, const std::string& table, const QueueFlags& flags,
                   const std::filesystem::path& out,
                   const std::function<RunQueue()>& next_stage = {});

}  // namespace planish::lab

#endif  // PLANISH_LAB_COMMANDS_QUEUE_H_
