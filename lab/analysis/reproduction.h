#ifndef PLANISH_LAB_ANALYSIS_REPRODUCTION_H_
#define PLANISH_LAB_ANALYSIS_REPRODUCTION_H_

#include <string>
#include <utility>
#include <vector>

#include "lab/analysis/summary.h"
#include "lab/papers/paper.h"

// Comparison of runs with a paper's tables. Results point into the sections and into Papers().
namespace planish::lab {

/// Runs of a paper's column.
struct ColumnRuns {
  const PaperColumn* column = nullptr;
  const Section* section = nullptr;          ///< null: no run belongs to the column
  const Panel* panel = nullptr;              ///< the chosen one: can get a verdict, then most runs
  const MetricSpec* metric = nullptr;        ///< of the column; null if the runs do not have it
  bool own_data = false;                     ///< set for the paper's own data, by its checksum
  Evidence evidence = Evidence::kOtherData;  ///< of the panel's runs for the column
  int other_panels = 0;                      ///< further panels of the column, left out

  /// Returns the group of runs with that norm, or null.
  const Group* Find(std::string_view norm) const;
};

/// Paper with runs for some of its columns.
struct Reproduction {
  const Paper* paper = nullptr;
  std::vector<ColumnRuns> columns;  ///< one for each column of the paper

  const ColumnRuns& At(std::string_view column) const;
  /// Returns the labels of columns without runs, each once.
  std::vector<std::string> Missing() const;
  /// Returns true if at least half of the columns have runs.
  bool IsMostlyRun() const;
};

/// Returns every paper with tables that some section belongs to. `sections` must outlive the
/// result.
std::vector<Reproduction> FindReproductions(const std::vector<Section>& sections);

/// Weighted sum over norms: norm -> weight.
using Contrast = std::vector<std::pair<std::string, double>>;

/// Measured contrast.
struct ContrastResult {
  Estimate value;  ///< paired: over the seeds that finished with every norm
  /// 1: surely better than 0; -1: surely worse; 0: cannot tell. Sure means a 95% interval without
  /// 0.
  /// Of two norms, one whose every run diverged (two or more) is surely worse than one that
  /// finished twice or more. If runs diverged against the interval's sign, the sign is 0, because
  /// the mean is over survivors.
  int sign = 0;
  bool measured = false;  ///< set if every norm has runs that have ended
  bool by_divergence = false;
  std::string doubt;  ///< why the sign is 0 although the interval has one, or there is no interval
};

/// Returns the contrast of `metric`, read at `measure`, in the runs of a column.
ContrastResult Measured(const ColumnRuns& runs, const Contrast& contrast, const MetricSpec& metric,
                        Measure measure);

/// Returns the difference in steps or seconds of training to the best evaluation (chosen by
/// validation, on `metric`) of the contrast's second norm: first norm minus second.
/// A run that never reached it counts with all its steps or seconds, a lower bound.
ContrastResult MeasuredEffort(const ColumnRuns& runs, const Contrast& contrast,
                              const MetricSpec& metric, Effort effort);

/// Returns the sign of the printed values: 1 better, -1 worse, 0 a tie or nothing printed. Diverged
/// is worse than any value.
int PrintedSign(const Paper& paper, const PaperColumn& column, const Contrast& contrast);

/// Result of a table row in one column, compared with the table's baseline norm.
struct LineResult {
  Verdict verdict = Verdict::kNotMeasured;
  int printed = 0;  ///< sign of the printed difference, as in PrintedSign
  ContrastResult difference;
};

/// Judges a table row: agrees if the interval has the printed sign, differs if it has the opposite
/// sign, cannot tell if it includes 0 or a tie is printed. Runs that EvidenceOf excludes get no
/// verdict or "other data", whatever their values.
LineResult Judge(const Reproduction& reproduction, const ColumnRuns& runs,
                 const PaperTable::Line& line);

/// Result of a claim over several columns.
struct PaperClaimResult {
  struct Column {
    const ColumnRuns* runs = nullptr;
    const MetricSpec* metric = nullptr;  ///< null: not measured
    ContrastResult contrast;             ///< sign 1: the claim holds in this column
  };
  const PaperClaim* claim = nullptr;
  Verdict verdict = Verdict::kNotMeasured;
  std::vector<Column> columns;
  int printed = 0;  ///< for claims on the test metric: columns whose printed values show the claim

  /// Returns the column's label. Adds its metric if the claim is about that metric.
  std::string LabelOf(const Column& column) const;
  /// Returns the labels of columns with that sign, on the paper's own data or on substitutes.
  std::vector<std::string> Columns(int sign, bool own_data) const;
};

/// Judges a paper's claims on the paper's own data. Agrees if enough columns hold; differs if too
/// few can hold, counting open columns as possible. Columns that cannot tell, substitutes, and
/// columns without a verdict (EvidenceOf) are open.
/// Other data: only substitutes decide it. Cannot tell: nothing decides it. No verdict: every
/// measured column is without one.
std::vector<PaperClaimResult> JudgeClaims(const Reproduction& reproduction);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_REPRODUCTION_H_
