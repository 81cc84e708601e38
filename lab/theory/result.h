#ifndef PLANISH_LAB_THEORY_RESULT_H_
#define PLANISH_LAB_THEORY_RESULT_H_

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lab/analysis/statistics.h"
#include "lab/terminal/layout.h"

// What an analysis of the papers' theory measures: statements with verdicts, tables and charts.
namespace planish::lab {

/// Whether a statement of a paper holds, as measured.
enum class TheoryVerdict {
  kHolds,
  kHoldsCorrected,  ///< with a condition or correction that `measured` names
  kHoldsInPart,     ///< in some of several cases, which `measured` names
  kFails,
  kCannotTell,
};

/// All verdicts.
inline constexpr std::array kTheoryVerdicts = {
    TheoryVerdict::kHolds, TheoryVerdict::kHoldsCorrected, TheoryVerdict::kHoldsInPart,
    TheoryVerdict::kFails, TheoryVerdict::kCannotTell};

/// Returns the verdict in words: "holds".
std::string_view TextOf(TheoryVerdict verdict);

/// Returns the verdict on a statement of which `right` of `all` cases surely agree, and `wrong`
/// surely disagree.
TheoryVerdict VerdictOf(int right, int wrong, int all);

struct TheoryStatement {
  std::string source;  ///< "Xu et al. 2019, Theorem 2"
  std::string text;
  TheoryVerdict verdict = TheoryVerdict::kCannotTell;
  std::string measured;  ///< what the verdict rests on
};

/// A number or a text. Numbers are shown with three significant digits.
using TheoryCell = std::variant<std::string, double>;

/// Adds the mean and the half-width of the 95% interval to a row, NaN where there is none.
void AddCells(const Estimate& estimate, std::vector<TheoryCell>& row);

struct TheoryTable {
  std::string caption;
  std::vector<std::string> head;
  std::vector<std::vector<TheoryCell>> rows;  ///< each as long as `head`
};

struct TheoryLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< (x, y)
};

struct TheoryChart {
  std::string heading;
  std::string x_label, y_label;
  bool log_x = false, log_y = false;
  std::vector<TheoryLine> lines;
};

struct TheoryResult {
  std::string name;  ///< of the analysis
  std::string title;
  nlohmann::ordered_json settings = nlohmann::ordered_json::object();
  std::vector<TheoryStatement> statements;
  std::vector<TheoryTable> tables;
  std::vector<TheoryChart> charts;
};

/// Returns the result as JSON (docs/commands.md). A number that is not finite becomes null.
nlohmann::ordered_json ToJson(const TheoryResult& result);

/// Returns the result that ToJson has written; null becomes NaN. Throws std::exception with a short
/// reason if `json` is something else.
TheoryResult TheoryFromJson(const nlohmann::ordered_json& json);

/// Returns a cell as it is shown; "-" for a number that is not finite.
std::string TextOf(const TheoryCell& cell);

/// Returns the result as text for a terminal, without its charts.
std::string RenderTheory(const TheoryResult& result, const TableOptions& options = {});

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_RESULT_H_
