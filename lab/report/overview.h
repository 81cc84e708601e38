#ifndef PLANISH_LAB_REPORT_OVERVIEW_H_
#define PLANISH_LAB_REPORT_OVERVIEW_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/report/markup.h"
#include "lab/report/norm_style.h"

// Charts that show all results of a part of the report at once, as inline SVG.
namespace planish::lab {

/// Value of a row with its interval.
struct IntervalRow {
  std::string label;
  LineStyle style;
  double low = 0, middle = 0, high = 0;  ///< equal without an interval
  std::vector<double> values;            ///< of one or two seeds, drawn instead of an interval
  std::string text;                      ///< for the text alternative: "0.83 points lower"
};

/// Chart of values with intervals, one row each.
struct IntervalChart {
  std::string id;  ///< unique in the document
  std::string heading;
  std::string x_name;                         ///< with its unit
  std::optional<double> reference;            ///< drawn as a vertical line, such as 0
  std::function<std::string(double)> x_text;  ///< labels of the axis' ticks
  std::vector<IntervalRow> rows;
};

Markup RenderIntervals(const IntervalChart& chart);

/// Outcome of one comparison.
enum class Outcome { kNone, kAgrees, kDiffers, kEquivalent, kOpen };

/// Cell of an OutcomeChart.
struct OutcomeCell {
  Outcome outcome = Outcome::kNone;
  bool own_data = true;  ///< drawn filled; an outline otherwise
};

/// Chart of outcomes: rows of cells, at most `columns` wide.
struct OutcomeChart {
  struct Row {
    std::string label;
    std::vector<OutcomeCell> cells;
    std::string text;  ///< for the text alternative
  };
  std::string id;  ///< unique in the document
  std::string heading;
  std::vector<std::string> columns;  ///< labels; empty: the cells of a row have no columns
  std::vector<Row> rows;
  /// Words of the key, in the order agrees, agrees on other data (an outline), differs, differs on
  /// other data, equivalent, open. Empty: these.
  std::vector<std::string> words = {};
  std::string note = {};  ///< last entry of the key
};

Markup RenderOutcomes(const OutcomeChart& chart);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_OVERVIEW_H_
