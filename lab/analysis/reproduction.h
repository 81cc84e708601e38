#ifndef PLANISH_LAB_ANALYSIS_REPRODUCTION_H_
#define PLANISH_LAB_ANALYSIS_REPRODUCTION_H_

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "lab/analysis/claims.h"
#include "lab/analysis/sequential.h"
#include "lab/analysis/two_way.h"
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
  /// Returns the unit of the column's values: "BLEU", or "%" for a percentage. Without runs it is
  /// that of the printed values.
  const std::string& Unit() const;
};

/// Paper with runs for some of its columns.
struct Reproduction {
  const Paper* paper = nullptr;
  std::vector<ColumnRuns> columns;         ///< one for each column of the paper
  const SequentialTests* looks = nullptr;  ///< null: no seeds were added to decide claims

  const ColumnRuns& At(std::string_view column) const;
  /// Returns the labels of columns without runs, each once.
  std::vector<std::string> Missing() const;
  /// Returns true if at least half of the columns have runs.
  bool IsMostlyRun() const;
};

/// Returns every paper with tables that some section belongs to. `sections` and `looks` must
/// outlive the result. A contrast that has been looked at is only as sure as its looks.
std::vector<Reproduction> FindReproductions(const std::vector<Section>& sections,
                                            const std::vector<SequentialTests>& looks = {});

/// Returns the sign of the printed values: 1 better, -1 worse, 0 a tie or nothing printed. Diverged
/// is worse than any value.
int PrintedSign(const Paper& paper, const PaperColumn& column, const Contrast& contrast);

/// Result of a table row in one column, compared with the table's baseline norm.
struct LineResult {
  Verdict verdict = Verdict::kNotMeasured;
  int printed = 0;  ///< sign of the printed difference, as in PrintedSign
  ContrastResult difference;
};

/// Returns the result of a table row. It agrees if the interval has the printed sign and differs if
/// it has the opposite sign, on the paper's data or on other data. It is equivalent if the interval
/// includes 0 and the difference is surely within Paper::MarginOf, on the paper's data. Otherwise,
/// and if a tie is printed, it is open. Runs that EvidenceOf excludes get no verdict.
LineResult Judge(const Reproduction& reproduction, const ColumnRuns& runs,
                 const PaperTable::Line& line);

/// p-values of all differences in a paper's tables, each counted once.
struct TableTests {
  int sure = 0;        ///< intervals without 0
  int all = 0;         ///< differences with a p-value
  int after_fdr = 0;   ///< below 0.05 after FalseDiscoveryAdjusted
  int after_holm = 0;  ///< below 0.05 after HolmAdjusted
  /// Column, norm and the norm it is compared with -> FalseDiscoveryAdjusted.
  std::map<std::tuple<const ColumnRuns*, std::string, std::string>, double> adjusted;
};

/// Returns the tests of all differences in the paper's tables, without runs that get no verdict.
TableTests TestTables(const Reproduction& reproduction);

/// Result of a claim over several columns.
struct PaperClaimResult {
  struct Column {
    const ColumnRuns* runs = nullptr;
    MetricSpec metric;           ///< of the contrast's values
    ContrastResult contrast;     ///< sign 1: the claim holds in this column
    bool is_equivalent = false;  ///< set if it is surely within Paper::MarginOf
  };
  const PaperClaim* claim = nullptr;
  Verdict verdict = Verdict::kNotMeasured;
  std::vector<Column> columns;
  int printed = 0;  ///< for claims on the test metric: columns whose printed values show the claim
  int with_printed = 0;  ///< columns that print values for the claim
  /// p-value of the claim holding in as many columns as the paper says; for one that differs, of
  /// the opposite. Counts the columns that decide the verdict (Benjamini & Heller 2008, with
  /// Bonferroni's bound). nullopt unless a column has one.
  std::optional<double> p;
  std::optional<double> holm;  ///< adjusted for all claims of the paper

  /// Returns the column's label. Adds its metric if the claim is about that metric.
  std::string LabelOf(const Column& column) const;
  /// Returns the labels of columns with that sign, on the paper's own data or on substitutes.
  std::vector<std::string> Columns(int sign, bool own_data) const;
};

/// Returns the interval over seeds and test items of a claim's contrast in a column.
TwoWayResult TwoWayOf(const Reproduction& reproduction, const PaperClaim& claim,
                      const PaperClaimResult::Column& column);

/// Returns that of a table row's difference.
TwoWayResult TwoWayOf(const ColumnRuns& runs, const PaperTable::Line& line);

/// Returns that of a claim about a task.
TwoWayResult TwoWayOf(const ClaimResult& result);

/// Judges a paper's claims on the paper's own data. Agrees if enough columns hold; differs if too
/// few can hold, counting open columns as possible. Columns on other data and columns without a
/// verdict (EvidenceOf) are open.
/// If these columns are decided only by columns on other data, it agrees or differs on other data.
/// Equivalent: every column is. Open: nothing decides it. No verdict: no measured column has one.
std::vector<PaperClaimResult> JudgeClaims(const Reproduction& reproduction);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_REPRODUCTION_H_
