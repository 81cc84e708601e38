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

// Which runs a paper's tables take, in which order, and how long.
namespace planish::lab {

/// What `planish reproduce` is asked for.
struct ReproduceRequest {
  std::string preset;              ///< empty: the paper's
  std::vector<std::string> tasks;  ///< names of columns or of tasks, in order; empty: all columns
  /// Empty: those of each column. Else each column has those of them that its task has.
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
  bool done = false;                   ///< its folder has a result
  double part_done = 0;                ///< of an unfinished run, 0 to 1

  /// "rt small-ada-b64-s1"
  std::string Name() const;
};

/// Minutes that runs take: what was measured of a column and norm, else of the column, else what
/// the paper's table says of its preset, else unknown.
class Estimates {
 public:
  /// `reference` minutes for each column; absent where nothing is known.
  explicit Estimates(std::vector<std::optional<double>> reference)
      : reference_(std::move(reference)), all_(reference_.size()), by_norm_(reference_.size()) {}

  void Add(size_t column, const std::string& norm, double minutes);

  /// Of a whole run.
  std::optional<double> Minutes(size_t column, const std::string& norm) const;
  /// Of the mean run of a column.
  std::optional<double> Minutes(size_t column) const;
  bool Measured(size_t column) const { return all_[column].count > 0; }
  /// Of what is left of a run.
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
  /// In the order to run them: the paper's norms before others; seed by seed; columns as asked for;
  /// norms as the column has them.
  std::vector<PlannedRun> runs;
  Estimates estimates{{}};

  size_t Done() const;
};

using TaskFinder = std::function<const Task&(std::string_view)>;

/// Plans the runs and looks into their folders. Throws UsageError for columns, norms or presets
/// that do not exist, RunError where a folder has a result that cannot be read.
ReproducePlan MakePlan(const Paper& paper, const ReproduceRequest& request, const TaskFinder& find);

/// What fits: runs that are not done in their order, each on the job that is free first. A run that
/// would end after `hours` is left out, and those behind it are tried. A run of unknown length is
/// taken to fit.
struct Schedule {
  size_t runs = 0;     ///< that fit
  size_t left = 0;     ///< that do not
  size_t unknown = 0;  ///< of those that fit, of unknown length
  double hours = 0;    ///< until the last of known length ends
};

Schedule MakeSchedule(const ReproducePlan& plan, int jobs, std::optional<double> hours);

/// The plan as a table for a terminal.
std::string RenderPlan(const ReproducePlan& plan);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPRODUCE_PLAN_H_
