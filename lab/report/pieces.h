#ifndef PLANISH_LAB_REPORT_PIECES_H_
#define PLANISH_LAB_REPORT_PIECES_H_

#include <string>
#include <string_view>
#include <vector>

#include "lab/analysis/summary.h"
#include "lab/report/chart.h"
#include "lab/report/markup.h"

// Pieces of the page that several of its sections are made of.
namespace planish::lab {

/// In place of a value that there is not.
inline constexpr std::string_view kMissing = "–";

Markup Cell(const Markup& content);
Markup NumberCell(const Markup& content);
Markup Head(const Markup& content);
Markup NumberHead(const Markup& content);
Markup RowHead(const Markup& content);

/// A table in a box of its own, which scrolls sideways where the page is narrow. `kind` is a class
/// of the box, or empty.
Markup ScrollingTable(const std::string& label, const Markup& head, const Markup& body,
                      const std::string& kind = "");

Markup Details(const std::string& summary, const Markup& content);
Markup List(const std::vector<std::string>& lines);
Markup Fact(const std::string& term, const Markup& content);

/// A verdict or the like, by its colour.
Markup Badge(std::string_view word);

/// A difference with its sign and interval: "+0.42 ± 0.30".
std::string DifferenceText(const MetricSpec& metric, const Estimate& difference);

/// Names of the series, which show and hide them.
Markup RenderLegend(const std::vector<Series>& series);

/// What the charts' marks mean, as far as they occur.
std::string ChartNote(const std::vector<Series>& series, const Axis& axis);

/// A chart with its heading above it.
Markup RenderFigure(const Chart& chart);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_PIECES_H_
