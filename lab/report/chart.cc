#include "lab/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lab/analysis/format.h"
#include "lab/base/format_integer.h"

namespace planish::lab {
namespace {

double XValue(const Chart& chart, const Curve::Point& point) {
  return chart.against_seconds ? point.seconds : static_cast<double>(point.step);
}

std::string CostName(const Chart& chart, const Curve::Point& point) {
  if (!chart.places.empty()) return chart.places[static_cast<size_t>(point.step - 1)];
  return chart.against_seconds ? FormatSignificant(point.seconds, 3) + " s"
                               : "step " + FormatInteger(point.step);
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

std::string XName(const Chart& chart) {
  if (chart.against_seconds) return "seconds of training";
  return chart.places.empty() ? "steps (updates of the weights)" : "norms from input to output";
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

PlotLine LineOf(const Chart& chart, const Series& series) {
  PlotLine line{.name = series.name,
                .style = series.style,
                .points = {},
                .has_band = series.curve.seeds > 1,
                .thin = {},
                .crosses = {}};
  for (const Curve::Point& point : series.curve.mean) {
    const Estimate& e = point.value;
    line.points.push_back({.x = XValue(chart, point),
                           .y = e.mean,
                           .low = e.count == 2 ? e.min : e.low(),
                           .high = e.count == 2 ? e.max : e.high(),
                           .at = CostName(chart, point),
                           .value = FormatValue(chart.metric, e.mean)});
  }
  for (const Curve::Seed& seed : series.curve.single) {
    auto& thin = line.thin.emplace_back();
    for (const Curve::Point& point : seed.points) {
      thin.emplace_back(XValue(chart, point), point.value.mean);
    }
    if (StatusOf(*seed.run) == Status::kDiverged) line.crosses.push_back(thin.back());
  }
  return line;
}

}  // namespace

Axis ValueAxis(const std::vector<Curve>& curves, bool lower_is_better) {
  // Runs that diverged leave the chart. They determine its axis only if there are no others.
  std::vector<double> values;
  for (const bool diverged : {false, true}) {
    for (const Curve& curve : curves) {
      for (const Curve::Seed& seed : curve.single) {
        if ((StatusOf(*seed.run) == Status::kDiverged) != diverged) continue;
        for (const Curve::Point& point : seed.points) {
          values.push_back(std::clamp(point.value.mean, -kMaxPlotted, kMaxPlotted));
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
    axis = SpacedAxis(above_zero, high, true);
    axis.has_zero = low == 0;
    return axis;
  }
  return SpacedAxis(low, high, false);
}

Axis CostAxis(double high) {
  Axis axis;
  axis.high = high > 0 ? std::min(high, kMaxPlotted) * 1.02 : 1;
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
  Plot plot{.id = chart.id,
            .heading = chart.heading,
            .description = Describe(chart),
            .x = CostAxis(furthest),
            .y = chart.axis,
            .x_name = XName(chart),
            .x_text = CostText,
            .y_text = [&](double value) { return AxisText(chart.metric, value); },
            .whole_x = !chart.places.empty(),
            .lines = {}};
  for (const Series& series : chart.series) plot.lines.push_back(LineOf(chart, series));
  return RenderPlot(plot);
}

}  // namespace planish::lab
