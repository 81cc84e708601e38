#include "lab/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>

namespace planish::lab {
namespace {

// Layout in user units. Text is 13 units high, and 17 on narrow screens, where a unit is smaller.
// The margins fit the larger text.
constexpr double kWidth = 560;
constexpr double kHeight = 350;
constexpr double kLeft = 66;
constexpr double kRight = 18;
constexpr double kTop = 12;
constexpr double kBottom = 56;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;

using Point = std::pair<double, double>;

double X(const Axis& axis, double value) { return kLeft + kPlotWidth * axis.Place(value); }

// Returns the vertical position of a value. Values far outside end just beyond the edge, where they
// are clipped.
double Y(const Axis& axis, double value) {
  const double place = std::clamp(axis.Place(value), axis.log ? 0.0 : -0.5, 1.5);
  return kTop + kPlotHeight * (1 - place);
}

std::string Coordinates(double x, double y) { return fmt::format("{:.1f} {:.1f}", x, y); }

// Returns every n-th point and the last, at most `limit` points.
template <class T>
std::vector<T> Thinned(const std::vector<T>& points, size_t limit) {
  if (points.size() <= limit) return points;
  std::vector<T> thinned;
  const size_t stride = (points.size() + limit - 1) / limit;
  for (size_t i = 0; i + 1 < points.size(); i += stride) thinned.push_back(points[i]);
  thinned.push_back(points.back());
  return thinned;
}

// Appends a line through the points, whose values are those of `y`.
template <class Points, class Value>
void AddPath(const Plot& plot, const Points& points, const Value& value, std::string& path) {
  for (const auto& point : points) {
    const Point at = value(point);
    path += path.empty() ? "M" : "L";
    path += Coordinates(X(plot.x, at.first), Y(plot.y, at.second));
  }
}

Point Middle(const PlotPoint& point) { return {point.x, point.y}; }
Point Low(const PlotPoint& point) { return {point.x, point.low}; }
Point High(const PlotPoint& point) { return {point.x, point.high}; }

// Returns the path of a band: the upper edge from left to right, then the lower edge back.
std::string BandPath(const Plot& plot, std::vector<PlotPoint> points) {
  std::string path;
  AddPath(plot, points, High, path);
  std::ranges::reverse(points);
  AddPath(plot, points, Low, path);
  return path + "Z";
}

std::string CrossPath(double x, double y) {
  return fmt::format("M{}l8 8m0 -8l-8 8", Coordinates(x - 4, y - 4));
}

// Draws markers about a sixth of the chart apart, staggered so that those of two lines rarely
// overlap.
Markup RenderMarkers(const Plot& plot, size_t index) {
  constexpr int kPerLine = 6;
  std::string path;
  double next = static_cast<double>(index % plot.lines.size()) /
                static_cast<double>(plot.lines.size()) / kPerLine;
  const std::vector<PlotPoint>& points = plot.lines[index].points;
  for (size_t i = 0; i < points.size(); ++i) {
    const double place = plot.x.Place(points[i].x);
    if (place < next && i + 1 < points.size()) continue;
    path +=
        MarkerPath(plot.lines[index].style.marker, X(plot.x, points[i].x), Y(plot.y, points[i].y));
    while (next <= place) next += 1.0 / kPerLine;
  }
  return Tag("path", {{"class", "marker"}, {"d", path}});
}

// Returns the attributes of a line with the dash of a style.
Attributes LineAttributes(const LineStyle& style, const std::string& path) {
  Attributes attributes = {{"class", "mean"}, {"d", path}};
  const std::string_view dash = LineDashes()[static_cast<size_t>(style.dash)];
  if (!dash.empty()) attributes.emplace_back("stroke-dasharray", dash);
  return attributes;
}

Markup RenderLine(const Plot& plot, size_t index) {
  constexpr size_t kPoints = 400;
  const PlotLine& line = plot.lines[index];
  const std::vector<PlotPoint> points = Thinned(line.points, kPoints);
  Markup content;
  if (line.has_band && points.size() > 1) {
    content += Tag("path", {{"class", "band"}, {"d", BandPath(plot, points)}});
  }
  for (const std::vector<Point>& thin : line.thin) {
    std::string path;
    AddPath(plot, Thinned(thin, kPoints), std::identity(), path);
    content += Tag("path", {{"class", "single"}, {"d", path}});
  }
  std::string path;
  AddPath(plot, points, Middle, path);
  content += Tag("path", LineAttributes(line.style, path));
  content += RenderMarkers(plot, index);
  std::string crosses;
  for (const auto& [x, y] : line.crosses) {
    crosses += CrossPath(X(plot.x, x), std::max(Y(plot.y, y), kTop + 6));
  }
  if (!crosses.empty()) content += Tag("path", {{"class", "cross"}, {"d", crosses}});

  // Data that the script shows at the pointer.
  std::string xs, where, values;
  for (const PlotPoint& point : points) {
    const std::string_view gap = xs.empty() ? "" : "|";
    xs += fmt::format("{}{:.1f}", gap, X(plot.x, point.x));
    where += fmt::format("{}{}", gap, point.at);
    values += fmt::format("{}{}", gap, point.value);
  }
  return Tag("g",
             {{"class", "series " + ColourClass(line.style)},
              {"data-name", line.name},
              {"data-x", xs},
              {"data-at", where},
              {"data-value", values}},
             content);
}

Markup RenderAxes(const Plot& plot) {
  Markup grid;
  Markup labels;
  const auto text = [&](double x, double y, std::string_view anchor, const std::string& content) {
    labels += Tag("text",
                  {{"x", fmt::format("{:.1f}", x)},
                   {"y", fmt::format("{:.1f}", y)},
                   {"text-anchor", std::string(anchor)}},
                  content);
  };
  std::string path;
  for (const double tick : plot.y.Ticks()) {
    const double y = Y(plot.y, tick);
    path += fmt::format("M{}h{:.1f}", Coordinates(kLeft, y), kPlotWidth);
    text(kLeft - 8, y + 4.5, "end", plot.y_text(tick));
  }
  grid += Tag("path", {{"class", "grid"}, {"d", path}});
  path.clear();
  for (const double tick : plot.x.Ticks()) {
    if (plot.whole_x && (tick < 1 || tick != std::floor(tick))) continue;
    path += fmt::format("M{}v5", Coordinates(X(plot.x, tick), kTop + kPlotHeight));
    text(X(plot.x, tick), kTop + kPlotHeight + 21, "middle", plot.x_text(tick));
  }
  path += fmt::format("M{}h{:.1f}", Coordinates(kLeft, kTop + kPlotHeight), kPlotWidth);
  grid += Tag("path", {{"class", "axis"}, {"d", path}});
  labels += Tag("text",
                {{"class", "axis-name"},
                 {"x", fmt::format("{:.1f}", kLeft + kPlotWidth / 2)},
                 {"y", fmt::format("{:.1f}", kHeight - 10)},
                 {"text-anchor", "middle"}},
                plot.x_name);
  grid += labels;
  return grid;
}

double NiceStep(double span, int max_ticks) {
  const double rough = span / max_ticks;
  const double decade = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * decade >= rough) return factor * decade;
  }
  return 10 * decade;
}

// NiceStep makes at most this many for a linear axis.
constexpr int kMaxTicks = 5;

std::vector<double> LinearTicks(double low, double high) {
  const double step = NiceStep(high - low, kMaxTicks);
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  // Counted, because a double above 2^53 plus 1 is the same double.
  for (int i = 0; i <= kMaxTicks && (first + i) * step <= high + 1e-9 * step; ++i) {
    ticks.push_back((first + i) * step + 0.0);  // not -0
  }
  return ticks;
}

std::vector<double> LogTicks(double low, double high) {
  const double decades = std::log10(high) - std::log10(low);
  static constexpr std::array<double, 6> kFine = {1, 1.5, 2, 3, 5, 7};
  static constexpr std::array<double, 3> kCoarse = {1, 2, 5};
  const std::span<const double> factors = decades < 1 ? std::span<const double>(kFine)
                                          : decades < 2.5
                                              ? std::span<const double>(kCoarse)
                                              : std::span<const double>(kCoarse).first(1);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / 8)));
  std::vector<double> ticks;
  const int last = static_cast<int>(std::floor(std::log10(high)));
  for (int exponent = static_cast<int>(std::floor(std::log10(low))); exponent <= last; ++exponent) {
    if (exponent % stride != 0) continue;
    for (const double factor : factors) {
      // Parsed, not multiplied, so that 0.05 is 0.05.
      const std::string text = fmt::format("{}e{}", factor, exponent);
      double tick = 0;
      std::from_chars(text.data(), text.data() + text.size(), tick);
      if (tick >= low && tick <= high) ticks.push_back(tick);
    }
  }
  return ticks;
}

}  // namespace

double Axis::Place(double value) const {
  if (!log) return (std::clamp(value, -kMaxPlotted, kMaxPlotted) - low) / (high - low);
  if (value <= 0) return -1;
  return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
}

std::vector<double> Axis::Ticks() const {
  return log ? LogTicks(low, high) : LinearTicks(low, high);
}

Axis SpacedAxis(double low, double high, bool log) {
  Axis axis{.log = log};
  if (log) {
    const double pad = std::pow(high / low, 0.04);
    axis.low = std::max(low / pad, kMinPlotted);
    axis.high = std::min(high * pad, kMaxPlotted);
    return axis;
  }
  // Equal, or different by rounding only.
  if (high - low <= 1e-12 * std::max(std::abs(low), std::abs(high))) {
    const double pad = low == 0 ? 1 : 0.1 * std::abs(low);
    low -= pad;
    high += pad;
  }
  axis.low = low - 0.05 * (high - low);
  axis.high = high + 0.05 * (high - low);
  return axis;
}

Markup RenderPlot(const Plot& plot) {
  Markup lines;
  for (size_t i = 0; i < plot.lines.size(); ++i) lines += RenderLine(plot, i);
  const std::string clip = plot.id + "-clip";
  return Tag("svg",
             {{"viewBox", fmt::format("0 0 {} {}", kWidth, kHeight)},
              {"role", "img"},
              {"aria-label", plot.heading},
              {"aria-describedby", plot.id + "-desc"},
              {"data-top", fmt::format("{}", kTop)},
              {"data-bottom", fmt::format("{}", kTop + kPlotHeight)}},
             Tag("desc", {{"id", plot.id + "-desc"}}, plot.description),
             Tag("clipPath", {{"id", clip}},
                 Tag("rect", {{"x", fmt::format("{}", kLeft - 5)},
                              {"y", fmt::format("{}", kTop - 5)},
                              {"width", fmt::format("{}", kPlotWidth + 10)},
                              {"height", fmt::format("{}", kPlotHeight + 10)}})),
             RenderAxes(plot), Tag("g", {{"clip-path", "url(#" + clip + ")"}}, lines));
}

std::string MarkerPath(int marker, double x, double y) {
  const auto at = [&](double dx, double dy) { return Coordinates(x + dx, y + dy); };
  switch (marker) {
    case 0:  // circle
      return fmt::format("M{}a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0Z", at(-3.6, 0));
    case 1:  // square
      return fmt::format("M{}h6.4v6.4h-6.4Z", at(-3.2, -3.2));
    case 2:  // triangle
      return fmt::format("M{}L{}L{}Z", at(0, -4.4), at(4.2, 3.2), at(-4.2, 3.2));
    case 3:  // diamond
      return fmt::format("M{}L{}L{}L{}Z", at(0, -4.8), at(4.8, 0), at(0, 4.8), at(-4.8, 0));
    case 4:  // triangle on its tip
      return fmt::format("M{}L{}L{}Z", at(0, 4.4), at(4.2, -3.2), at(-4.2, -3.2));
    case 5:  // plus
      return fmt::format("M{}h3v-2.9h2.8v2.9h3v2.8h-3v2.9h-2.8v-2.9h-3Z", at(-4.4, -1.4));
    case 6:  // cross
      return fmt::format(
          "M{}l2.2 -2.2l2.2 2.2l2.2 -2.2l2.2 2.2l-2.2 2.2l2.2 2.2l-2.2 2.2l-2.2 -2.2l-2.2 2.2"
          "l-2.2 -2.2l2.2 -2.2Z",
          at(-4.4, -2.2));
    default:  // star
      return fmt::format(
          "M{}l1.5 3.3l3.5 0.4l-2.6 2.4l0.7 3.5l-3.1 -1.8l-3.1 1.8l0.7 -3.5l-2.6 -2.4l3.5 -0.4Z",
          at(0, -5.2));
  }
}

std::string ColourClass(const LineStyle& style) { return fmt::format("c{}", style.colour); }

Markup RenderSample(const LineStyle& style) {
  return Tag(
      "svg", {{"class", "sample"}, {"viewBox", "0 0 40 16"}, {"aria-hidden", "true"}},
      Tag("g", {{"class", ColourClass(style)}}, Tag("path", LineAttributes(style, "M2 8H38")),
          Tag("path", {{"class", "marker"}, {"d", MarkerPath(style.marker, 20, 8)}})));
}

std::string RenderNormStyles() {
  constexpr size_t kColumns = 3;
  constexpr double kCell = 170, kRow = 22, kEdge = 12;
  const std::span<const NormStyle> norms = NormStyles();
  const size_t rows = (norms.size() + kColumns - 1) / kColumns;
  const double width = 2 * kEdge + kCell * kColumns;
  const double height = 2 * kEdge + kRow * static_cast<double>(rows);
  Markup pages;
  for (const bool dark : {false, true}) {
    const double left = dark ? width : 0;
    pages += Tag("rect", {{"x", fmt::format("{}", left)},
                          {"width", fmt::format("{}", width)},
                          {"height", fmt::format("{}", height)},
                          {"fill", std::string(dark ? kDarkPage : kLightPage)}});
    for (size_t i = 0; i < norms.size(); ++i) {
      const double x = left + kEdge + kCell * static_cast<double>(i / rows);
      const double y = kEdge + kRow * (static_cast<double>(i % rows) + 0.5);
      const LineStyle& style = norms[i].style;
      const Colour& colour = LineColours()[static_cast<size_t>(style.colour)];
      const std::string hex(dark ? colour.dark : colour.light);
      Attributes line = {{"d", fmt::format("M{} {}h36", x, y)},
                         {"fill", "none"},
                         {"stroke", hex},
                         {"stroke-width", "2.2"}};
      const std::string_view dash = LineDashes()[static_cast<size_t>(style.dash)];
      if (!dash.empty()) line.emplace_back("stroke-dasharray", dash);
      pages += Tag("path", line) +
               Tag("path", {{"d", MarkerPath(style.marker, x + 18, y)}, {"fill", hex}}) +
               Tag("text",
                   {{"x", fmt::format("{}", x + 44)},
                    {"y", fmt::format("{}", y + 4)},
                    {"fill", dark ? "#e4e7ea" : "#1c2024"}},
                   norms[i].name);
    }
  }
  return Tag("svg",
             {{"xmlns", "http://www.w3.org/2000/svg"},
              {"viewBox", fmt::format("0 0 {} {}", 2 * width, height)},
              {"font-family", "sans-serif"},
              {"font-size", "12"}},
             Tag("title", {}, "Line styles of norms and cells"), pages)
             .html() +
         "\n";
}

}  // namespace planish::lab
