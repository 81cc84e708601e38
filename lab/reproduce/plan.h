#ifndef PLANISH_LAB_REPRODUCE_PLAN_H_
#define PLANISH_LAB_REPRODUCE_PLAN_H_

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/engine/task.h"
#include "lab/papers/paper.h"
#include "lab/queue/queue.h"

// Plan of a paper's runs.
namespace planish::lab {

/// Request of `planish reproduce`.
struct ReproduceRequest {
  std::string preset;              ///< empty: the paper's
  std::vector<std::string> tasks;  ///< names of columns or tasks, in order; empty: all columns
  /// Norms to run, in columns whose task has them. Empty: those of each column.
  std::vector<std::string> norms;
  std::optional<int> seeds;  ///< absent: those of each column
  std::filesystem::path out;
};

/// Runs of a column: each of the norms with the seeds 1 to `seeds`.
struct PlannedColumn {
  const PaperColumn* column = nullptr;
  std::vector<std::string> norms;
  int seeds = 0;
  std::string preset;
};

struct ReproducePlan {
  const Paper* paper = nullptr;
  std::string preset;  ///< of most columns
  std::vector<PlannedColumn> columns;
  /// Its groups are the columns. Order: the paper's norms before others; seed by seed; columns as
  /// requested; norms in the column's order.
  RunQueue queue;
};

using TaskFinder = std::function<const Task&(std::string_view)>;

/// Plans the runs and reads their folders. Throws UsageError for unknown columns, norms or presets,
/// and RunError if a folder has an unreadable result.
ReproducePlan MakePlan(const Paper& paper, const ReproduceRequest& request, const TaskFinder& find);

/// Returns the runs of `columns`, each once, in the order of ReproducePlan::queue. Finds their
/// results in `out` by `results`. Throws like MakePlan.
RunQueue QueueColumns(const Paper& paper, const std::vector<PlannedColumn>& columns,
                      const std::filesystem::path& out, const TaskFinder& find,
                      RunResults& results);

/// Returns the plan as a table for a terminal.
std::string RenderPlan(const ReproducePlan& plan);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPRODUCE_PLAN_H_
