#ifndef PLANISH_LAB_REPORT_CHART_H_
#define PLANISH_LAB_REPORT_CHART_H_

#include <string>
#include <vector>

#include "lab/analysis/summary.h"
#include "lab/report/markup.h"
#include "lab/report/plot.h"

// Charts of runs.
namespace planish::lab {

/// Returns the axis for all values of `curves`. It is logarithmic if lower is better, no value is
/// negative, and the largest is at least 4 times the smallest positive value.
Axis ValueAxis(const std::vector<Curve>& curves, bool lower_is_better);

/// Returns a linear axis from 0 to `high`.
Axis CostAxis(double high);

/// One line of a chart.
struct Series {
  std::string name;
  LineStyle style;
  Curve curve;
};

/// Metric against steps or seconds.
struct Chart {
  std::string id;  ///< unique in the document
  std::string heading;
  MetricSpec metric;
  bool against_seconds = false;
  std::vector<std::string> places;  ///< if not empty, steps 1, 2, ... are these places of a model
  Axis axis;
  std::vector<Series> series;
};

/// Returns the chart as inline SVG with a text alternative: mean lines, bands (the 95% interval;
/// the range for two seeds), single seeds.
Markup RenderChart(const Chart& chart);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_CHART_H_
