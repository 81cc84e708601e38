#include "lab/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "lab/analysis/format.h"
#include "lab/base/format_integer.h"

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

// Beyond these, an axis' width or its labels would overflow.
constexpr double kMaxValue = 1e300;
constexpr double kMinValue = 1e-300;

constexpr std::array<std::string_view, 5> kDashes = {"", "7 3", "2 2.5", "9 3 2 3", "4 2"};
constexpr int kMarkers = 6;

double X(const Axis& axis, double value) { return kLeft + kPlotWidth * axis.Place(value); }

// Returns the vertical position of a value. Values far outside end just beyond the edge, where they
// are clipped.
double Y(const Axis& axis, double value) {
  const double place = std::clamp(axis.Place(value), axis.log ? 0.0 : -0.5, 1.5);
  return kTop + kPlotHeight * (1 - place);
}

double XValue(const Chart& chart, const Curve::Point& point) {
  return chart.against_seconds ? point.seconds : static_cast<double>(point.step);
}

std::string CostName(const Chart& chart, const Curve::Point& point) {
  if (!chart.places.empty()) return chart.places[static_cast<size_t>(point.step - 1)];
  return chart.against_seconds ? FormatSignificant(point.seconds, 3) + " s"
                               : "step " + FormatInteger(point.step);
}

std::string Coordinates(double x, double y) { return fmt::format("{:.1f} {:.1f}", x, y); }

// Returns every n-th point and the last, at most `limit` points, because long runs have more
// evaluations than a chart has pixels.
std::vector<Curve::Point> Thinned(const std::vector<Curve::Point>& points, size_t limit) {
  if (points.size() <= limit) return points;
  std::vector<Curve::Point> thinned;
  const size_t stride = (points.size() + limit - 1) / limit;
  for (size_t i = 0; i + 1 < points.size(); i += stride) thinned.push_back(points[i]);
  thinned.push_back(points.back());
  return thinned;
}

std::string LinePath(const Chart& chart, const Axis& x_axis,
                     const std::vector<Curve::Point>& points) {
  std::string path;
  for (const Curve::Point& point : points) {
    path += path.empty() ? "M" : "L";
    path += Coordinates(X(x_axis, XValue(chart, point)), Y(chart.axis, point.value.mean));
  }
  return path;
}

// Returns the path of a band: the upper edge from left to right, then the lower edge back.
std::string BandPath(const Chart& chart, const Axis& x_axis,
                     const std::vector<Curve::Point>& points) {
  const auto high = [](const Estimate& e) { return e.count == 2 ? e.max : e.high(); };
  const auto low = [](const Estimate& e) { return e.count == 2 ? e.min : e.low(); };
  std::string path;
  for (const Curve::Point& point : points) {
    path += path.empty() ? "M" : "L";
    path += Coordinates(X(x_axis, XValue(chart, point)), Y(chart.axis, high(point.value)));
  }
  for (auto point = points.rbegin(); point != points.rend(); ++point) {
    path += "L" + Coordinates(X(x_axis, XValue(chart, *point)), Y(chart.axis, low(point->value)));
  }
  return path + "Z";
}

std::string MarkerPath(int style, double x, double y) {
  const auto at = [&](double dx, double dy) { return Coordinates(x + dx, y + dy); };
  switch (style % kMarkers) {
    case 0:
      return fmt::format("M{}a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0Z", at(-3.6, 0));
    case 1:
      return fmt::format("M{}h6.4v6.4h-6.4Z", at(-3.2, -3.2));
    case 2:
      return fmt::format("M{}L{}L{}Z", at(0, -4.4), at(4.2, 3.2), at(-4.2, 3.2));
    case 3:
      return fmt::format("M{}L{}L{}L{}Z", at(0, -4.8), at(4.8, 0), at(0, 4.8), at(-4.8, 0));
    case 4:
      return fmt::format("M{}L{}L{}Z", at(0, 4.4), at(4.2, -3.2), at(-4.2, -3.2));
    default:
      return fmt::format("M{}h3v-2.9h2.8v2.9h3v2.8h-3v2.9h-2.8v-2.9h-3Z", at(-4.4, -1.4));
  }
}

std::string CrossPath(double x, double y) {
  return fmt::format("M{}l8 8m0 -8l-8 8", Coordinates(x - 4, y - 4));
}

// Draws markers about a sixth of the chart apart, staggered so that those of two series rarely
// overlap.
Markup RenderMarkers(const Chart& chart, const Axis& x_axis, const Series& series, size_t index) {
  constexpr int kPerLine = 6;
  std::string path;
  double next = static_cast<double>(index % chart.series.size()) /
                static_cast<double>(chart.series.size()) / kPerLine;
  const std::vector<Curve::Point>& points = series.curve.mean;
  for (size_t i = 0; i < points.size(); ++i) {
    const double place = x_axis.Place(XValue(chart, points[i]));
    if (place < next && i + 1 < points.size()) continue;
    path += MarkerPath(series.style, X(x_axis, XValue(chart, points[i])),
                       Y(chart.axis, points[i].value.mean));
    while (next <= place) next += 1.0 / kPerLine;
  }
  return Tag("path", {{"class", "marker"}, {"d", path}});
}

std::string StyleClass(int style) { return fmt::format("c{}", style % 12); }

Markup RenderSeries(const Chart& chart, const Axis& x_axis, size_t index) {
  constexpr size_t kPoints = 400;
  const Series& series = chart.series[index];
  const std::vector<Curve::Point> mean = Thinned(series.curve.mean, kPoints);
  Markup content;
  if (series.curve.seeds > 1 && mean.size() > 1) {
    content += Tag("path", {{"class", "band"}, {"d", BandPath(chart, x_axis, mean)}});
  }
  std::string crosses;
  for (const Curve::Seed& seed : series.curve.single) {
    const std::vector<Curve::Point> points = Thinned(seed.points, kPoints);
    content += Tag("path", {{"class", "single"}, {"d", LinePath(chart, x_axis, points)}});
    if (StatusOf(*seed.run) == Status::kDiverged) {
      const double y = Y(chart.axis, points.back().value.mean);
      crosses += CrossPath(X(x_axis, XValue(chart, points.back())), std::max(y, kTop + 6));
    }
  }
  Attributes line = {{"class", "mean"}, {"d", LinePath(chart, x_axis, mean)}};
  const std::string_view dash = kDashes[series.style % kDashes.size()];
  if (!dash.empty()) line.emplace_back("stroke-dasharray", dash);
  content += Tag("path", line);
  content += RenderMarkers(chart, x_axis, series, index);
  if (!crosses.empty()) content += Tag("path", {{"class", "cross"}, {"d", crosses}});

  // Data that the script shows at the pointer.
  std::string xs;
  std::string where;
  std::string values;
  for (const Curve::Point& point : mean) {
    const std::string_view gap = xs.empty() ? "" : "|";
    xs += fmt::format("{}{:.1f}", gap, X(x_axis, XValue(chart, point)));
    where += fmt::format("{}{}", gap, CostName(chart, point));
    values += fmt::format("{}{}", gap, FormatValue(chart.metric, point.value.mean));
  }
  return Tag("g",
             {{"class", "series " + StyleClass(series.style)},
              {"data-name", series.name},
              {"data-x", xs},
              {"data-at", where},
              {"data-value", values}},
             content);
}

std::string AxisText(const MetricSpec& metric, double value) {
  const double shown = Shown(metric, value);
  const std::string unit = metric.unit == "%" ? "%" : "";
  if (shown == 0) return "0" + unit;
  if (std::abs(shown) >= 1e5 || std::abs(shown) < 1e-3) return fmt::format("{:.3g}", shown) + unit;
  return fmt::format("{:.6g}", shown) + unit;
}

std::string CostText(double value) {
  if (value >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (value >= 1000) return FormatInteger(std::llround(value));
  return fmt::format("{:.6g}", value);
}

Markup RenderAxes(const Chart& chart, const Axis& x_axis) {
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
  for (const double tick : chart.axis.Ticks()) {
    const double y = Y(chart.axis, tick);
    path += fmt::format("M{}h{:.1f}", Coordinates(kLeft, y), kPlotWidth);
    text(kLeft - 8, y + 4.5, "end", AxisText(chart.metric, tick));
  }
  grid += Tag("path", {{"class", "grid"}, {"d", path}});
  path.clear();
  for (const double tick : x_axis.Ticks()) {
    if (!chart.places.empty() && (tick < 1 || tick != std::floor(tick))) continue;
    path += fmt::format("M{}v5", Coordinates(X(x_axis, tick), kTop + kPlotHeight));
    text(X(x_axis, tick), kTop + kPlotHeight + 21, "middle", CostText(tick));
  }
  path += fmt::format("M{}h{:.1f}", Coordinates(kLeft, kTop + kPlotHeight), kPlotWidth);
  grid += Tag("path", {{"class", "axis"}, {"d", path}});
  labels += Tag("text",
                {{"class", "axis-name"},
                 {"x", fmt::format("{:.1f}", kLeft + kPlotWidth / 2)},
                 {"y", fmt::format("{:.1f}", kHeight - 10)},
                 {"text-anchor", "middle"}},
                chart.against_seconds  ? "seconds of training"
                : chart.places.empty() ? "steps (updates of the weights)"
                                       : "norms from input to output");
  grid += labels;
  return grid;
}

std::string Describe(const Chart& chart) {
  std::string text =
      fmt::format("Line chart of {} against {}, {} axis.", LabelWithUnit(chart.metric),
                  chart.against_seconds  ? "seconds of training"
                  : chart.places.empty() ? "steps"
                                         : "the norms of the model",
                  chart.axis.log ? "logarithmic" : "linear");
  for (const Series& series : chart.series) {
    const std::vector<Curve::Point>& points = series.curve.mean;
    if (points.empty()) {
      text += fmt::format(" {}: no mean.", series.name);
      continue;
    }
    text += fmt::format(" {}: {} at {}", series.name,
                        FormatValue(chart.metric, points.front().value.mean),
                        CostName(chart, points.front()));
    if (points.size() > 1) {
      text += fmt::format(", {} at {}", FormatValue(chart.metric, points.back().value.mean),
                          CostName(chart, points.back()));
    }
    text += ".";
  }
  return text;
}

double NiceStep(double span, int max_ticks) {
  const double rough = span / max_ticks;
  const double decade = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * decade >= rough) return factor * decade;
  }
  return 10 * decade;
}

std::vector<double> LinearTicks(double low, double high) {
  const double step = NiceStep(high - low, 5);
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) {
    ticks.push_back(i * step + 0.0);  // not -0
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
  if (!log) return (std::clamp(value, -kMaxValue, kMaxValue) - low) / (high - low);
  if (value <= 0) return -1;
  return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
}

std::vector<double> Axis::Ticks() const {
  return log ? LogTicks(low, high) : LinearTicks(low, high);
}

Axis ValueAxis(const std::vector<Curve>& curves, bool lower_is_better) {
  // Runs that diverged leave the chart. They determine its axis only if there are no others.
  std::vector<double> values;
  for (const bool diverged : {false, true}) {
    for (const Curve& curve : curves) {
      for (const Curve::Seed& seed : curve.single) {
        if ((StatusOf(*seed.run) == Status::kDiverged) != diverged) continue;
        for (const Curve::Point& point : seed.points) {
          values.push_back(std::clamp(point.value.mean, -kMaxValue, kMaxValue));
        }
      }
    }
    if (!values.empty()) break;
  }
  Axis axis;
  if (values.empty()) return axis;
  double high = *std::max_element(values.begin(), values.end());
  double low = *std::min_element(values.begin(), values.end());
  double above_zero = std::numeric_limits<double>::infinity();
  for (const double value : values) {
    if (value > 0) above_zero = std::min(above_zero, value);
  }
  if (lower_is_better && low >= 0 && high >= 4 * above_zero) {
    axis.log = true;
    axis.has_zero = low == 0;
    const double pad = std::pow(high / above_zero, 0.04);
    axis.low = std::max(above_zero / pad, kMinValue);
    axis.high = std::min(high * pad, kMaxValue);
    return axis;
  }
  if (low == high) {
    const double pad = low == 0 ? 1 : 0.1 * std::abs(low);
    low -= pad;
    high += pad;
  }
  axis.low = low - 0.05 * (high - low);
  axis.high = high + 0.05 * (high - low);
  return axis;
}

Axis CostAxis(double high) {
  Axis axis;
  axis.high = high > 0 ? std::min(high, kMaxValue) * 1.02 : 1;
  return axis;
}

Markup RenderChart(const Chart& chart) {
  double furthest = 0;
  for (const Series& series : chart.series) {
    for (const Curve::Seed& seed : series.curve.single) {
      for (const Curve::Point& point : seed.points) {
        furthest = std::max(furthest, XValue(chart, point));
      }
    }
  }
  const Axis x_axis = CostAxis(furthest);
  Markup lines;
  for (size_t i = 0; i < chart.series.size(); ++i) lines += RenderSeries(chart, x_axis, i);
  const std::string clip = chart.id + "-clip";
  return Tag("svg",
             {{"viewBox", fmt::format("0 0 {} {}", kWidth, kHeight)},
              {"role", "img"},
              {"aria-label", chart.heading},
              {"aria-describedby", chart.id + "-desc"},
              {"data-top", fmt::format("{}", kTop)},
              {"data-bottom", fmt::format("{}", kTop + kPlotHeight)}},
             Tag("desc", {{"id", chart.id + "-desc"}}, Describe(chart)),
             Tag("clipPath", {{"id", clip}},
                 Tag("rect", {{"x", fmt::format("{}", kLeft - 5)},
                              {"y", fmt::format("{}", kTop - 5)},
                              {"width", fmt::format("{}", kPlotWidth + 10)},
                              {"height", fmt::format("{}", kPlotHeight + 10)}})),
             RenderAxes(chart, x_axis), Tag("g", {{"clip-path", "url(#" + clip + ")"}}, lines));
}

Markup RenderSample(int style) {
  Attributes line = {{"class", "mean"}, {"d", "M2 8H38"}};
  const std::string_view dash = kDashes[style % kDashes.size()];
  if (!dash.empty()) line.emplace_back("stroke-dasharray", dash);
  return Tag("svg", {{"class", "sample"}, {"viewBox", "0 0 40 16"}, {"aria-hidden", "true"}},
             Tag("g", {{"class", StyleClass(style)}}, Tag("path", line),
                 Tag("path", {{"class", "marker"}, {"d", MarkerPath(style, 20, 8)}})));
}

}  // namespace planish::lab
