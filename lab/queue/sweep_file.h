#ifndef PLANISH_LAB_QUEUE_SWEEP_FILE_H_
#define PLANISH_LAB_QUEUE_SWEEP_FILE_H_

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/engine/task.h"
#include "lab/queue/queue.h"

// Sweeps over several tasks, described in a TOML file:
//
//   preset = "small"                   # default of all sweeps
//   seeds = 3                          # 1 to 3; [1, 5] means exactly these
//
//   [[sweep]]
//   task = "pi-mnist"
//   norm = ["none", "batch", "layer"]  # any setting of `planish list TASK`: a value or a list
//   lr = [1e-3, 3e-4]
//
// Each combination of the values is one run for each seed.
namespace planish::lab {

struct SweepPlan {
  /// Its groups are the sweeps. Order: seed by seed; sweeps as in the file.
  RunQueue queue;
  std::vector<std::vector<std::string>> cells;  ///< of RenderQueue
};

/// Plans the runs of a sweep file, in the folder `out`, and reads their folders. Throws DataError
/// if the file cannot be read or is not TOML. Throws UsageError with the line for an unknown task,
/// setting or value, and for a run that two sweeps have.
SweepPlan PlanSweepFile(const std::filesystem::path& file, const std::filesystem::path& out,
                        const std::function<const Task&(std::string_view)>& find);

/// Returns the plan as a table for a terminal.
std::string RenderSweep(const SweepPlan& plan);

/// Returns a command line for a POSIX shell: the arguments, quoted where a shell needs it.
std::string ShellLine(const std::vector<std::string>& arguments);

}  // namespace planish::lab

#endif  // PLANISH_LAB_QUEUE_SWEEP_FILE_H_
