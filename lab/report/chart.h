#ifndef PLANISH_LAB_REPORT_CHART_H_
#define PLANISH_LAB_REPORT_CHART_H_

#include <string>
#include <vector>

#include "lab/analysis/summary.h"
#include "lab/report/markup.h"

namespace planish::lab {

/// Vertical axis of a line chart.
struct Axis {
  double low = 0;
  double high = 1;
  bool log = false;
  bool has_zero = false;  ///< set if a logarithmic axis draws values of 0 at its lower edge

  /// Returns the position of `value`: 0 at the lower end, 1 at the upper end, and beyond them for
  /// values outside.
  double Place(double value) const;
  /// Returns the values to label, ascending and inside the axis.
  std::vector<double> Ticks() const;
};

/// Returns the axis for all values of `curves`. It is logarithmic if lower is better, no value is
/// negative, and the largest is at least 4 times the smallest positive value.
Axis ValueAxis(const std::vector<Curve>& curves, bool lower_is_better);

/// Returns a linear axis from 0 to `high`.
Axis CostAxis(double high);

/// One line of a chart: a curve, its name and the index of its style (colour, dash, marker).
struct Series {
  std::string name;
  int style = 0;
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

/// Returns a short piece of a series' line with its marker, for a legend.
Markup RenderSample(int style);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_CHART_H_
