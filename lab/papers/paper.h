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
#include "lab/run/results.h"

// Papers as data: the experiments of the lab behind a paper's tables, the printed values and the
// claims. `planish reproduce` plans runs from it, and the report compares runs with it. Nothing
// here computes; a table that needs no runs is measured in invariances.h.
namespace planish::lab {

/// Printed value of a training that diverged.
inline constexpr double kPrintedDiverged = std::numeric_limits<double>::quiet_NaN();

/// Weighted sum over norms: norm -> weight. {{"ada", 1}, {"layer", -1}} is the difference of two.
using Contrast = std::vector<std::pair<std::string, double>>;

/// Column of a paper's tables: an experiment.
struct PaperColumn {
  std::string name;         ///< for --tasks: "en-de"
  std::string label;        ///< as printed: "En-De"
  std::string task;         ///< the lab's task
  std::string preset = {};  ///< empty: Paper::preset
  /// Settings of the column beside the preset. A run of this task whose settings have these values
  /// belongs to the column, whatever its preset.
  std::map<std::string, nlohmann::ordered_json> settings = {};
  std::string metric;            ///< of the test set, read at the evaluation that validation chose
  bool lower_is_better = false;  ///< as printed
  std::string unit;              ///< of the printed value: "BLEU"; also used for measured values
  std::string train_curve;       ///< training and validation metrics that claims are about
  std::string valid_curve;
  std::vector<std::string> drawn = {};  ///< curves of the figures; empty: these two
  std::string paper_data;               ///< displayed name of the paper's data
  std::string data;                     ///< its PaperData::name, if its checksum is known
  /// Norm -> printed value. Missing: nothing is printed.
  std::map<std::string, double> printed = {};
  std::optional<double> sampling_error = std::nullopt;  ///< of one value, from the test set's size
  /// The column whose runs this one reads with another metric. Empty: it has its own runs.
  std::string runs_of = {};
  /// Label of runs with several metrics as columns: "Skip-thoughts". Empty: `label`.
  std::string runs_label = {};
  int layers = 0;                  ///< as printed
  std::vector<std::string> norms;  ///< norms to run, the paper's first
  int seeds = 3;                   ///< seeds to run
  double minutes = 0;              ///< time of a run with that preset, measured on one core

  /// Returns the number of decimals of the printed values: 1 to 3.
  int Decimals() const;
  /// Returns a printed value as text: "1.10" or "diverged".
  std::string PrintedText(double value) const;
  /// Replaces each "{NORM}" in `text` by the value printed for that norm.
  std::string WithPrinted(std::string_view text) const;
  /// Returns the metrics whose curves the figures draw.
  std::vector<std::string> Curves() const {
    return drawn.empty() ? std::vector<std::string>{train_curve, valid_curve} : drawn;
  }
  /// Returns the label of the runs, and that of their metric: "Skip-thoughts, SICK r".
  std::string LabelOfRuns() const { return runs_label.empty() ? label : runs_label; }
  std::string LabelOfMetric() const {
    return runs_label.empty() ? label : runs_label + ", " + label;
  }
};

/// Returns a column with these members and the defaults of the others.
PaperColumn NewColumn(const std::string& name, const std::string& label, const std::string& task,
                      const std::string& metric, const std::string& unit);

/// Row of a paper's results: a norm.
struct PaperRow {
  std::string norm;           ///< name in the lab
  std::string label;          ///< as printed
  bool printed_only = false;  ///< another model, which the lab does not train
};

/// Table: rows of the results, some compared with another.
struct PaperTable {
  struct Line {
    std::string norm;
    std::string against;  ///< the norm that the table compares it with; empty: none
  };
  std::string name;  ///< "Table 1"
  std::string caption;
  std::vector<Line> lines;
  std::vector<std::string> columns = {};  ///< empty: all

  bool Has(const PaperColumn& column) const;
};

/// Figure of curves of the given columns.
struct PaperFigure {
  std::string name;  ///< "Figure 1"
  std::string caption;
  std::vector<std::string> columns;
  std::vector<std::string> norms;
  bool seconds = false;  ///< set if curves are also drawn against seconds of training
};

/// Claim about several columns: in each, the sum of weight * value over `contrast` is better than
/// 0. For example, {{"ada", 1}, {"layer", -1}} states that AdaNorm is better than LayerNorm.
/// kSteps and kSeconds need a contrast with the weights 1 and -1. They state that the first norm
/// takes fewer steps or seconds of training to reach the second norm's best evaluation, chosen by
/// validation; kSecondsToBest, that it takes fewer seconds to its own best evaluation.
struct PaperClaim {
  enum class Of { kTest, kTrainCurve, kValidCurve, kSteps, kSeconds, kSecondsToBest };
  std::string text;
  std::string source;  ///< where it is printed
  Contrast contrast;
  std::vector<std::string> columns;  ///< columns that it is about
  int min_columns = 0;               ///< minimum number of these in which it must hold
  Of of = Of::kTest;                 ///< curves are read after the last step
  /// It states that the contrast is no worse than 0, up to Paper::MarginOf. Only for kTest.
  bool no_worse = false;
  /// Column whose runs have the contrast's second norm. Empty: the columns themselves.
  std::string against = {};
};

/// Published claim that the runs of a task can agree or disagree with. It states that under the
/// settings `where`, `metric` is better for `better` than for `worse`, two values of
/// ReportSpec::compare.
struct ClaimSpec {
  std::string text;    ///< the claim as a sentence
  std::string source;  ///< where it is printed
  std::string metric;  ///< a MetricSpec's name
  /// "final", "best", "steps to best", "seconds to best", "steps to VALUE", "steps to worse's best"
  /// or "seconds to worse's best". VALUE is reached at the first evaluation at or beyond it; for
  /// the last two see CompareCatchUp.
  std::string measure;
  std::string better;  ///< value of the compared setting
  std::string worse;   ///< value of the compared setting
  std::map<std::string, nlohmann::ordered_json>
      where;              ///< setting -> value, such as batch_size -> 4
  std::string data;       ///< PaperData::name of the data set that the claim was made on
  bool no_worse = false;  ///< the claim is only that `better` is not worse by more than `margin`
  double margin = 0;      ///< in the displayed unit
};

/// Claims of a paper about the runs of one task, for the task's section of the report: each is a
/// difference of two norms. ClaimsOf derives the ClaimSpecs.
struct TaskClaims {
  struct Claim {
    std::string text;    ///< "{NORM}" is replaced by the value printed for that norm in `column`
    std::string source;  ///< where it is printed, behind TaskClaims::source
    std::string better;  ///< norm
    std::string worse;   ///< norm
    std::string measure = "best";  ///< ClaimSpec::measure
    std::string metric = {};       ///< empty: the column's
    bool no_worse = false;         ///< `better` is no worse, up to Paper::MarginOf
  };
  std::string column;  ///< has the task, the metric, the printed values and the data
  std::string source;  ///< beginning of the sources: "Xu et al. 2019, "
  std::vector<Claim> claims;
  std::map<std::string, nlohmann::ordered_json> where = {};  ///< ClaimSpec::where
  std::string data = {};  ///< ClaimSpec::data; empty: the column's
};

/// Table of invariances. The report measures them when it is written.
struct PaperInvariances {
  struct Line {
    std::string norm;                                     ///< in InvarianceNorms()
    std::string label;                                    ///< as printed
    std::array<bool, kTransformations.size()> invariant;  ///< as printed
  };
  std::string name;  ///< "Table 1"
  std::string caption;
  std::vector<Line> lines;
  std::vector<std::string> notes = {};  ///< differences between the paper's text and its table
};

/// A paper.
struct Paper {
  std::string name;  ///< "xu2019"
  std::string title;
  std::string preset;  ///< default of `planish reproduce`
  std::vector<PaperColumn> columns;
  std::vector<PaperRow> rows = {};
  std::optional<PaperInvariances> invariances = std::nullopt;
  std::vector<PaperTable> tables = {};
  std::vector<PaperFigure> figures = {};
  std::vector<PaperClaim> claims = {};
  std::vector<TaskClaims> task_claims = {};
  std::vector<std::string> notes = {};  ///< facts that a reader of the comparison needs

  /// Returns the column or row with that name or norm, or null.
  const PaperColumn* FindColumn(std::string_view column) const;
  const PaperRow* FindRow(std::string_view norm) const;
  /// Returns the printed value, or nullopt if the paper has no such row or prints nothing there.
  std::optional<double> Printed(std::string_view norm, const PaperColumn& column) const;
  /// Returns the contrast of the printed values, or nullopt if one is missing or diverged.
  std::optional<double> PrintedContrast(const PaperColumn& column, const Contrast& contrast) const;
  /// Returns the margin within which a contrast counts as no difference: half of the printed one,
  /// or the sampling error of one value if that is larger. 0 if neither is known.
  double MarginOf(const PaperColumn& column, const Contrast& contrast) const;
};

/// Returns all papers.
const std::vector<Paper>& Papers();

/// Name of the arena, which `planish reproduce` trains like a paper (lab/reproduce/arena_plan.h).
inline constexpr char kArenaName[] = "arena";

/// Returns the paper of that name. Throws UsageError listing all names if there is none.
const Paper& FindPaper(std::string_view name);

/// Returns the claims of all papers about the runs of `task`, with the printed values in their
/// texts.
std::vector<ClaimSpec> ClaimsOf(std::string_view task);

Paper MakeBa2016();
Paper MakeXu2019();

}  // namespace planish::lab

#endif  // PLANISH_LAB_PAPERS_PAPER_H_
