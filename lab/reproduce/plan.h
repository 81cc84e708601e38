#ifndef PLANISH_LAB_REPRODUCE_PLAN_H_
#define PLANISH_LAB_REPRODUCE_PLAN_H_

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/engine/task.h"
#include "lab/papers/paper.h"

// Plan of a paper's runs: which, in which order, and how long they take.
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

/// One run of the plan.
struct PlannedRun {
  size_t column = 0;  ///< of ReproducePlan::columns
  std::string norm;
  int64_t seed = 1;
  std::filesystem::path folder;
  std::vector<std::string> arguments;  ///< of `planish`: "train", the task, its flags
  bool done = false;                   ///< set if its folder or an archive has a result
  double part_done = 0;                ///< completed fraction of an unfinished run, 0 to 1

  /// Returns a name like "rt small-ada-b64-s1".
  std::string Name() const;
};

/// Durations of runs in minutes: measured for a column and norm, else for the column, else from the
/// paper's table for its preset, else unknown.
class Estimates {
 public:
  /// `reference` has the minutes of each column, if known.
  explicit Estimates(std::vector<std::optional<double>> reference)
      : reference_(std::move(reference)), all_(reference_.size()), by_norm_(reference_.size()) {}

  void Add(size_t column, const std::string& norm, double minutes);

  /// Returns the minutes of a whole run.
  std::optional<double> Minutes(size_t column, const std::string& norm) const;
  /// Returns the minutes of a column's mean run.
  std::optional<double> Minutes(size_t column) const;
  bool Measured(size_t column) const { return all_[column].count > 0; }
  /// Returns the remaining minutes of a run.
  std::optional<double> Left(const PlannedRun& run) const;

 private:
  struct Mean {
    double sum = 0;
    int count = 0;
  };
  std::vector<std::optional<double>> reference_;
  std::vector<Mean> all_;
  std::vector<std::map<std::string, Mean>> by_norm_;
};

struct ReproducePlan {
  struct Column {
    const PaperColumn* column = nullptr;
    std::vector<std::string> norms;
    int seeds = 0;
    std::string preset;
  };
  const Paper* paper = nullptr;
  std::string preset;  ///< of most columns
  std::vector<Column> columns;
  /// Order of running: the paper's norms before others; seed by seed; columns as requested; norms
  /// in the column's order.
  std::vector<PlannedRun> runs;
  Estimates estimates{{}};

  size_t Done() const;
};

using TaskFinder = std::function<const Task&(std::string_view)>;

/// Plans the runs and reads their folders. Throws UsageError for unknown columns, norms or presets,
/// and RunError if a folder has an unreadable result.
ReproducePlan MakePlan(const Paper& paper, const ReproduceRequest& request, const TaskFinder& find);

/// Schedule of unfinished runs in their order, each on the job that is free first. A run that would
/// end after `hours` is left out, and later ones are tried. A run of unknown duration always fits.
struct Schedule {
  size_t runs = 0;     ///< runs that fit
  size_t left = 0;     ///< runs that do not fit
  size_t unknown = 0;  ///< runs that fit, of unknown duration
  double hours = 0;    ///< until the last run of known duration ends
};

Schedule MakeSchedule(const ReproducePlan& plan, int jobs, std::optional<double> hours);

/// Returns the plan as a table for a terminal.
std::string RenderPlan(const ReproducePlan& plan);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPRODUCE_PLAN_H_
