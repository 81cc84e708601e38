#ifndef PLANISH_LAB_REPORT_CHART_H_
#define PLANISH_LAB_REPORT_CHART_H_

#include <string>
#include <vector>

#include "lab/analysis/summary.h"
#include "lab/report/markup.h"

namespace planish::lab {

/// A line chart's vertical axis.
struct Axis {
  double low = 0;
  double high = 1;
  bool log = false;
  bool has_zero = false;  ///< a logarithmic axis draws values of 0 at its lower edge

  /// Position of `value`: 0 at the lower end, 1 at the upper, beyond them where it lies outside.
  double Place(double value) const;
  /// Values to label, ascending and inside the axis.
  std::vector<double> Ticks() const;
};

/// The axis that holds every value of `curves`: logarithmic when lower is better, nothing is
/// negative and the largest is at least 4 times the smallest above 0.
Axis ValueAxis(const std::vector<Curve>& curves, bool lower_is_better);

/// A linear axis from 0 to `high`.
Axis CostAxis(double high);

/// One line of a chart: a curve, its name and the number of its style (colour, dash, marker).
struct Series {
  std::string name;
  int style = 0;
  Curve curve;
};

/// A metric against steps or seconds.
struct Chart {
  std::string id;  ///< unique in the document
  std::string heading;
  MetricSpec metric;
  bool against_seconds = false;
  std::vector<std::string> places;  ///< when not empty, steps 1, 2, ... are these places of a model
  Axis axis;
  std::vector<Series> series;
};

/// The chart as inline SVG with a text alternative: mean lines, bands (the 95% interval; lowest to
/// highest for two seeds), single seeds.
Markup RenderChart(const Chart& chart);

/// A short piece of a series' line with its marker, for a legend.
Markup RenderSample(int style);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_CHART_H_
