#ifndef PLANISH_LAB_PAPERS_PAPER_H_
#define PLANISH_LAB_PAPERS_PAPER_H_

#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/papers/invariances.h"

// Papers as data: which experiments of the lab a paper's tables are made of, and what it prints.
// `planish reproduce` plans runs from it, the report sets runs beside it. Nothing here computes; a
// table that needs no runs has its measurement in invariances.h.
namespace planish::lab {

/// A printed value that says that training diverged.
inline constexpr double kPrintedDiverged = std::numeric_limits<double>::quiet_NaN();

/// One column of a paper's tables: an experiment.
struct PaperColumn {
  std::string name;         ///< for --tasks: "en-de"
  std::string label;        ///< as printed: "En-De"
  std::string task;         ///< the lab's task
  std::string preset = {};  ///< where it is not Paper::preset
  /// What the column sets beside the preset. A run whose settings have these values, of this task,
  /// belongs to the column, whatever its preset.
  std::map<std::string, nlohmann::ordered_json> settings = {};
  std::string metric;            ///< of the test set, read where validation chose
  bool lower_is_better = false;  ///< as printed
  std::string unit;         ///< of the printed value: "BLEU". The report shows stored values in it
  std::string train_curve;  ///< the metrics of training and validation that claims are read of
  std::string valid_curve;
  std::vector<std::string> drawn = {};  ///< that figures draw; empty: these two
  std::string paper_data;               ///< the paper's data, for people
  std::string data;                     ///< its PaperData::name; empty: its checksum is not known
  /// Norm -> what is printed for it. Not there: nothing is.
  std::map<std::string, double> printed = {};
  std::optional<double> sampling_error = std::nullopt;  ///< of one printed value, from the test
                                                        ///< set's size alone
  /// The column whose runs this one reads another metric of. Empty: it has runs of its own.
  std::string runs_of = {};
  /// Of the runs, where columns read several metrics of them: "Skip-thoughts". Empty: `label`.
  std::string runs_label = {};
  int layers = 0;                  ///< as printed
  std::vector<std::string> norms;  ///< to be run, the paper's first
  int seeds = 3;                   ///< to be run
  double minutes = 0;              ///< a run with that preset takes, measured on one core

  /// The metrics whose curves the figures draw.
  std::vector<std::string> Curves() const {
    return drawn.empty() ? std::vector<std::string>{train_curve, valid_curve} : drawn;
  }
  /// What the runs are called, and what their metric: "Skip-thoughts, SICK r".
  std::string LabelOfRuns() const { return runs_label.empty() ? label : runs_label; }
  std::string LabelOfMetric() const {
    return runs_label.empty() ? label : runs_label + ", " + label;
  }
};

/// One row of a paper's results: a norm.
struct PaperRow {
  std::string norm;   ///< as the lab names it
  std::string label;  ///< as printed
};

/// A table: rows of the results, some set against another.
struct PaperTable {
  struct Line {
    std::string norm;
    std::string against;  ///< the norm that the table compares it with; empty: none
  };
  std::string name;  ///< "Table 1"
  std::string caption;
  std::vector<Line> lines;
  std::vector<std::string> columns = {};  ///< empty: all
};

/// A figure of curves, of each column those that it says.
struct PaperFigure {
  std::string name;  ///< "Figure 1"
  std::string caption;
  std::vector<std::string> columns;
  std::vector<std::string> norms;
  bool seconds = false;  ///< whether curves are drawn against seconds of training, too
};

/// A statement about several columns: in each, the sum of weight * value over `contrast` is better
/// than 0. {{"ada", 1}, {"layer", -1}}: AdaNorm is better than LayerNorm. Of kSteps and kSeconds,
/// whose contrast has these two weights: the first takes fewer steps, or seconds of training, to be
/// as good as the second is at the evaluation that validation chose of it.
struct PaperClaim {
  enum class Of { kTest, kTrainCurve, kValidCurve, kSteps, kSeconds };
  std::string text;
  std::string source;  ///< where it is printed
  std::vector<std::pair<std::string, double>> contrast;
  std::vector<std::string> columns;  ///< that it speaks of
  int least = 0;                     ///< of these, how many it is said to hold in
  Of of = Of::kTest;                 ///< curves are read after the last step
};

/// A table of invariances, which the report measures as it is written.
struct PaperInvariances {
  struct Line {
    Normalisation norm;
    std::string label;                                    ///< as printed
    std::array<bool, kTransformations.size()> invariant;  ///< as printed, of kTransformations
  };
  std::string name;  ///< "Table 1"
  std::string caption;
  std::vector<Line> lines;
  std::vector<std::string> notes = {};  ///< where the paper's text differs from its table
};

/// A paper.
struct Paper {
  std::string name;  ///< "xu2019"
  std::string title;
  std::string preset;  ///< that `planish reproduce` takes where none is asked for
  std::vector<PaperColumn> columns;
  std::vector<PaperRow> rows = {};
  std::optional<PaperInvariances> invariances = std::nullopt;
  std::vector<PaperTable> tables = {};
  std::vector<PaperFigure> figures = {};
  std::vector<PaperClaim> claims = {};
  std::vector<std::string> notes = {};  ///< what a reader of the comparison must know

  /// The column, row with that name or norm, or null.
  const PaperColumn* FindColumn(std::string_view column) const;
  const PaperRow* FindRow(std::string_view norm) const;
  /// What is printed; nothing where the paper has no such row, or prints nothing there.
  std::optional<double> Printed(std::string_view norm, const PaperColumn& column) const;
};

/// All papers.
const std::vector<Paper>& Papers();

/// Throws UsageError, which lists those there are.
const Paper& FindPaper(std::string_view name);

Paper MakeBa2016();
Paper MakeXu2019();

}  // namespace planish::lab

#endif  // PLANISH_LAB_PAPERS_PAPER_H_
