#ifndef PLANISH_LAB_REPORT_PLOT_H_
#define PLANISH_LAB_REPORT_PLOT_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lab/report/markup.h"
#include "lab/report/norm_style.h"

// Line charts as inline SVG, whatever their values are.
namespace planish::lab {

/// Axis of a line chart.
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

/// Returns an axis from `low` to `high`, which are positive if it is logarithmic, with some space
/// at both ends. A linear axis of one value gets the space around it.
Axis SpacedAxis(double low, double high, bool log);

/// Beyond these, an axis' width or its labels would overflow.
inline constexpr double kMaxPlotted = 1e300;
inline constexpr double kMinPlotted = 1e-300;

/// Point of a line, with the edges of its band and the texts that the script shows at the pointer.
struct PlotPoint {
  double x = 0, y = 0;
  double low = 0, high = 0;
  std::string at;     ///< "step 100"
  std::string value;  ///< "3.2%"
};

struct PlotLine {
  std::string name;
  LineStyle style;
  std::vector<PlotPoint> points;
  bool has_band = false;
  std::vector<std::vector<std::pair<double, double>>> thin;  ///< further lines: single seeds
  std::vector<std::pair<double, double>> crosses;            ///< ends of runs that diverged
};

struct Plot {
  std::string id;  ///< unique in the document
  std::string heading;
  std::string description;  ///< text alternative
  Axis x, y;
  std::string x_name;
  std::function<std::string(double)> x_text, y_text;  ///< labels of the axes' ticks
  bool whole_x = false;                               ///< label only whole numbers from 1 up
  std::vector<PlotLine> lines;
};

/// Returns the plot as inline SVG. Long lines are thinned, because they have more points than a
/// chart has pixels.
Markup RenderPlot(const Plot& plot);

/// Returns the path of a marker at a point.
std::string MarkerPath(int marker, double x, double y);

/// Returns the class of elements in the colour of a style.
std::string ColourClass(const LineStyle& style);

/// Returns a short piece of a line with its marker, for a legend.
Markup RenderSample(const LineStyle& style);

/// Returns an SVG document with the styles of all norms and cells on a light and on a dark page.
std::string RenderNormStyles();

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_PLOT_H_
