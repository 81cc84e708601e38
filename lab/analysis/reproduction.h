#ifndef PLANISH_LAB_ANALYSIS_REPRODUCTION_H_
#define PLANISH_LAB_ANALYSIS_REPRODUCTION_H_

#include <string>
#include <utility>
#include <vector>

#include "lab/analysis/summary.h"
#include "lab/papers/paper.h"

// Runs beside a paper's tables, as numbers. Everything here points into the sections and into
// Papers().
namespace planish::lab {

/// Where a column's experiment is found among the runs.
struct ColumnRuns {
  const PaperColumn* column = nullptr;
  const Section* section = nullptr;    ///< null: no run belongs to the column
  const Panel* panel = nullptr;        ///< of those that belong to it, one that can get a verdict
                                       ///< before others, then that with most runs
  const MetricSpec* metric = nullptr;  ///< of the column; null where the runs do not have it
  bool own_data = false;               ///< the paper's own, by its checksum
  Evidence evidence = Evidence::kOtherData;  ///< of the panel's runs for the column
  int other_panels = 0;                      ///< that belong to it, too, and are left out

  /// Runs with that norm, or null.
  const Group* Find(std::string_view norm) const;
};

/// A paper some of whose columns have runs.
struct Reproduction {
  const Paper* paper = nullptr;
  std::vector<ColumnRuns> columns;  ///< one for each of the paper's

  const ColumnRuns& At(std::string_view column) const;
  /// What has no runs, each label once.
  std::vector<std::string> Missing() const;
  /// Whether at least half of the columns have runs.
  bool IsMostlyRun() const;
};

/// Every paper with tables that some section belongs to. `sections` must outlive the result.
std::vector<Reproduction> FindReproductions(const std::vector<Section>& sections);

/// A weighted sum over norms: norm -> weight.
using Contrast = std::vector<std::pair<std::string, double>>;

/// A contrast as measured.
struct ContrastResult {
  Estimate value;  ///< paired: over the seeds that finished with every norm of it
  /// Whether it is better than 0: 1 surely, -1 surely worse, 0 cannot tell. Sure is a 95% interval
  /// without 0. Of two norms, one whose every run diverged (two at least) is surely worse than one
  /// that finished twice or more. Where runs diverged against the interval's sign, 0: the mean is
  /// over survivors.
  int sign = 0;
  bool measured = false;  ///< there are runs that have ended for each norm
  bool by_divergence = false;
  std::string doubt;  ///< why the sign is 0 though the interval has one, or there is none
};

/// `metric` read at `measure` in the runs of a column.
ContrastResult Measured(const ColumnRuns& runs, const Contrast& contrast, const MetricSpec& metric,
                        Measure measure);

/// How many steps, or seconds of training, fewer or more the contrast's first norm takes to be as
/// good by `metric` as its second is at the evaluation that validation chose of it. A run that
/// never got there counts with all that it took: the least that it can be.
ContrastResult MeasuredEffort(const ColumnRuns& runs, const Contrast& contrast,
                              const MetricSpec& metric, Effort effort);

/// The sign of the printed values: 1 better, -1 worse, 0 a tie or nothing printed. Diverged is
/// worse than any value.
int PrintedSign(const Paper& paper, const PaperColumn& column, const Contrast& contrast);

/// A line of a table in one column, beside the norm that the table compares it with.
struct LineResult {
  Verdict verdict = Verdict::kNotMeasured;
  int printed = 0;  ///< sign of the printed difference, as PrintedSign
  ContrastResult difference;
};

/// The rule: agrees when the interval has the printed sign, differs when it has the other, cannot
/// tell when it includes 0 or a tie is printed; no verdict from runs, and other data on data, that
/// EvidenceOf says so of, whatever they show.
LineResult Judge(const Reproduction& reproduction, const ColumnRuns& runs,
                 const PaperTable::Line& line);

/// A claim over several columns.
struct PaperClaimResult {
  struct Column {
    const ColumnRuns* runs = nullptr;
    const MetricSpec* metric = nullptr;  ///< null: not measured
    ContrastResult contrast;             ///< sign 1: the claim holds here
  };
  const PaperClaim* claim = nullptr;
  Verdict verdict = Verdict::kNotMeasured;
  std::vector<Column> columns;
  int printed = 0;  ///< columns in which the printed values show it; for claims on the test metric

  /// What a column is called: by its metric only where the claim is about that.
  std::string LabelOf(const Column& column) const;
  /// Labels of the columns with that sign, on the paper's own data or on substitutes.
  std::vector<std::string> Columns(int sign, bool own_data) const;
};

/// The rule: a column in which nothing can be told may hold or not. Agrees when the columns that
/// hold are enough, differs when even all open ones would not make them enough; both on the paper's
/// own data alone, substitutes being open. Other data when only they decide it; cannot tell when
/// nothing does. A column whose runs get no verdict (EvidenceOf) is open; no verdict when all that
/// was measured is of such columns.
std::vector<PaperClaimResult> JudgeClaims(const Reproduction& reproduction);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_REPRODUCTION_H_
