#ifndef PLANISH_LAB_REPORT_PIECES_H_
#define PLANISH_LAB_REPORT_PIECES_H_

#include <string>
#include <string_view>
#include <vector>

#include "lab/analysis/summary.h"
#include "lab/analysis/two_way.h"
#include "lab/report/chart.h"
#include "lab/report/markup.h"

// Elements shared by several sections of the page.
namespace planish::lab {

/// Text of a missing value.
inline constexpr std::string_view kMissing = "–";

Markup Cell(const Markup& content);
Markup NumberCell(const Markup& content);
Markup Head(const Markup& content);
Markup NumberHead(const Markup& content);
Markup RowHead(const Markup& content);

/// Returns a table in a box that scrolls horizontally on a narrow page. `kind` is a class of the
/// box, or empty.
Markup ScrollingTable(const std::string& label, const Markup& head, const Markup& body,
                      const std::string& kind = "");

Markup Details(const std::string& summary, const Markup& content);
Markup List(const std::vector<std::string>& lines);
Markup Fact(const std::string& term, const Markup& content);

/// Returns a coloured word such as a verdict.
Markup Badge(std::string_view word);

/// Returns the style of a value of the section's compared setting.
LineStyle StyleOf(const Section& section, std::string_view value);

/// Returns a difference with its sign and interval: "+0.42 ± 0.30", or "+0.10 and +0.50" of two
/// seeds.
std::string DifferenceText(const MetricSpec& metric, const Estimate& difference);

/// Returns the interval over seeds and test items, "−0.40 to +1.20", or an empty text without one
/// and for two seeds, which are shown as both values. Says so if it includes 0 and the interval of
/// `difference`, over seeds, does not.
std::string SeedsAndItemsText(const MetricSpec& metric, const Estimate& difference,
                              const TwoWayResult& result);

/// Explanation of these intervals.
inline constexpr std::string_view kSeedsAndItemsNote =
    "Over seeds and test items: 95% interval of a bootstrap that draws seeds and test items again, "
    "with replacement. It also covers what another test set of this size would change. Verdicts "
    "follow the interval over seeds.";

/// Returns text like " on 10,000 test cases", or an empty text if the data have no test set.
std::string OnTestCases(const RunConfig& config);

/// Name and style of a line.
struct LegendEntry {
  std::string name;
  LineStyle style;
  bool operator==(const LegendEntry&) const = default;
};

/// Returns the names of lines as buttons that show and hide them.
Markup RenderLegend(const std::vector<LegendEntry>& entries);
Markup RenderLegend(const std::vector<Series>& series);

/// Returns the meaning of the marks that the charts contain.
std::string ChartNote(const std::vector<Series>& series, const Axis& axis);

/// Returns a chart below its heading.
Markup RenderFigure(const Chart& chart);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_PIECES_H_
