#include "lab/report/overview.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "lab/report/plot.h"
#include "lab/terminal/layout.h"

namespace planish::lab {
namespace {

// Layout in user units. Text is 13 units high, and 16 on narrow screens, where a unit is smaller:
// labels of kLabelWidth characters fit into kLabels units at either size.
constexpr double kDrawingWidth = 560;
constexpr double kLabels = 264;
constexpr size_t kLabelWidth = 29;
constexpr double kRightMargin = 14;
constexpr double kRow = 26;

std::string Number(double value) { return fmt::format("{:.1f}", value); }

Markup Text(double x, double y, std::string_view anchor, const std::string& content) {
  return Tag("text", {{"x", Number(x)}, {"y", Number(y)}, {"text-anchor", std::string(anchor)}},
             content);
}

Markup Path(std::string_view kind, const std::string& path) {
  return Tag("path", {{"class", std::string(kind)}, {"d", path}});
}

Markup Drawing(const std::string& id, const std::string& heading, const std::string& description,
               double height, const Markup& content) {
  const Markup svg = Tag("svg",
                         {{"viewBox", fmt::format("0 0 {} {:.0f}", kDrawingWidth, height)},
                          {"role", "img"},
                          {"aria-label", heading},
                          {"aria-describedby", id + "-desc"}},
                         Tag("desc", {{"id", id + "-desc"}}, description), content);
  return Tag("figure", {{"class", "overview"}}, Tag("figcaption", {}, heading), svg);
}

std::string OutcomePath(Outcome outcome, double x, double y) {
  switch (outcome) {
    case Outcome::kAgrees:
      return fmt::format("M{:.1f} {:.1f}l8 14h-16Z", x, y - 8);
    case Outcome::kDiffers:
      return fmt::format("M{:.1f} {:.1f}l8 -14h-16Z", x, y + 8);
    case Outcome::kEquivalent:
      return fmt::format("M{:.1f} {:.1f}h14v3h-14ZM{:.1f} {:.1f}h14v3h-14Z", x - 7, y - 5, x - 7,
                         y + 2);
    case Outcome::kOpen:
      return fmt::format("M{:.1f} {:.1f}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0Z", x - 3, y);
    case Outcome::kNone:
      break;
  }
  return "";
}

std::string_view KindOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kAgrees:
      return "agrees";
    case Outcome::kDiffers:
      return "differs";
    default:
      return "even";
  }
}

Markup Sign(const OutcomeCell& cell, double x, double y) {
  return Path(fmt::format("outcome {}{}", KindOf(cell.outcome), cell.own_data ? "" : " outline"),
              OutcomePath(cell.outcome, x, y));
}

// Returns the meaning of the signs that a chart contains.
Markup Key(const OutcomeChart& chart) {
  struct Meaning {
    OutcomeCell cell;
    std::string_view text;
  };
  static constexpr std::array<Meaning, 6> kMeanings = {{
      {{Outcome::kAgrees, true}, "agrees"},
      {{Outcome::kAgrees, false}, "agrees on other data"},
      {{Outcome::kDiffers, true}, "differs"},
      {{Outcome::kDiffers, false}, "differs on other data"},
      {{Outcome::kEquivalent, true}, "equivalent"},
      {{Outcome::kOpen, true}, "open"},
  }};
  Markup items;
  for (size_t i = 0; i < kMeanings.size(); ++i) {
    const OutcomeCell& cell = kMeanings[i].cell;
    const bool any = std::ranges::any_of(chart.rows, [&](const OutcomeChart::Row& row) {
      return std::ranges::any_of(row.cells, [&](const OutcomeCell& other) {
        return other.outcome == cell.outcome &&
               (other.own_data == cell.own_data || cell.outcome == Outcome::kOpen);
      });
    });
    if (!any) continue;
    items += Tag("li", {},
                 Tag("svg", {{"class", "sign"}, {"viewBox", "0 0 20 20"}, {"aria-hidden", "true"}},
                     Sign(cell, 10, 10)),
                 chart.words.empty() ? std::string(kMeanings[i].text) : chart.words[i]);
  }
  if (!chart.note.empty()) items += Tag("li", {}, chart.note);
  return Tag("ul", {{"class", "key"}}, items);
}

}  // namespace

Markup RenderIntervals(const IntervalChart& chart) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double low = chart.reference.value_or(kInfinity), high = chart.reference.value_or(-kInfinity);
  const auto bounded = [](double value) { return std::clamp(value, -kMaxPlotted, kMaxPlotted); };
  for (const IntervalRow& row : chart.rows) {
    low = std::min({low, bounded(row.low), bounded(row.middle)});
    high = std::max({high, bounded(row.high), bounded(row.middle)});
    for (const double value : row.values) {
      low = std::min(low, bounded(value)), high = std::max(high, bounded(value));
    }
  }
  const Axis axis = SpacedAxis(low, high, false);
  constexpr double kTop = 6;
  const double bottom = kTop + kRow * static_cast<double>(chart.rows.size());
  const auto x = [&](double value) {
    return kLabels + (kDrawingWidth - kLabels - kRightMargin) * axis.Place(bounded(value));
  };
  Markup content;
  std::string grid, ticks;
  for (const double tick : axis.Ticks()) {
    grid += fmt::format("M{:.1f} {:.1f}V{:.1f}", x(tick), kTop, bottom);
    content += Text(x(tick), bottom + 18, "middle", chart.x_text(tick));
  }
  content = Path("grid", grid) + content;
  if (chart.reference) {
    content +=
        Path("reference", fmt::format("M{:.1f} {:.1f}V{:.1f}", x(*chart.reference), kTop, bottom));
  }
  std::string description;
  for (size_t i = 0; i < chart.rows.size(); ++i) {
    const IntervalRow& row = chart.rows[i];
    const double y = kTop + kRow * (static_cast<double>(i) + 0.5);
    content += Text(kLabels - 10, y + 4.5, "end", Cut(row.label, kLabelWidth));
    Markup drawn;
    if (row.values.empty()) {
      drawn = Path("interval", fmt::format("M{:.1f} {:.1f}H{:.1f}", x(row.low), y, x(row.high))) +
              Path("marker", MarkerPath(row.style.marker, x(row.middle), y));
    } else {
      std::string markers;
      for (const double value : row.values) markers += MarkerPath(row.style.marker, x(value), y);
      drawn = Path("marker", markers);
    }
    content += Tag("g", {{"class", ColourClass(row.style)}}, drawn);
    description += fmt::format("{}{}: {}.", i == 0 ? "" : " ", row.label, row.text);
  }
  content += Tag("text",
                 {{"class", "axis-name"},
                  {"x", Number(kLabels + (kDrawingWidth - kLabels - kRightMargin) / 2)},
                  {"y", Number(bottom + 42)},
                  {"text-anchor", "middle"}},
                 chart.x_name);
  return Drawing(chart.id, chart.heading, description, bottom + 52, content);
}

Markup RenderOutcomes(const OutcomeChart& chart) {
  // Narrower signs would overlap. Rows with more of them have several lines.
  constexpr double kMinStep = 18, kMaxStep = 34;
  constexpr double kSpace = kDrawingWidth - kLabels - kRightMargin;
  constexpr auto kMaxCells = static_cast<size_t>(kSpace / kMinStep);
  size_t columns = chart.columns.size();
  for (const OutcomeChart::Row& row : chart.rows) columns = std::max(columns, row.cells.size());
  const size_t in_line = std::clamp<size_t>(columns, 1, std::max(kMaxCells, chart.columns.size()));
  const double step = std::min(kMaxStep, kSpace / static_cast<double>(in_line));
  constexpr size_t kColumnWidth = 13;  // characters
  size_t longest = 0;
  for (const std::string& label : chart.columns) {
    longest = std::max(longest, std::min(Width(label), kColumnWidth));
  }
  const double top = 12 + 8 * static_cast<double>(longest);
  const auto x = [&](size_t i) { return kLabels + step * (static_cast<double>(i) + 0.5); };
  Markup content;
  for (size_t i = 0; i < chart.columns.size(); ++i) {
    content +=
        Tag("text",
            {{"transform", fmt::format("translate({:.1f} {:.1f}) rotate(-60)", x(i) + 4, top - 6)}},
            Cut(chart.columns[i], kColumnWidth));
  }
  std::string description, grid;
  double y = top - kRow / 2;
  for (const OutcomeChart::Row& row : chart.rows) {
    for (size_t i = 0; i < std::max<size_t>(row.cells.size(), 1); ++i) {
      if (i % in_line == 0) {
        y += kRow;
        grid += fmt::format("M{:.1f} {:.1f}H{:.1f}", kLabels, y, kDrawingWidth - kRightMargin);
        if (i == 0) content += Text(kLabels - 10, y + 4.5, "end", Cut(row.label, kLabelWidth));
      }
      if (i < row.cells.size() && row.cells[i].outcome != Outcome::kNone) {
        content += Sign(row.cells[i], x(i % in_line), y);
      }
    }
    description += fmt::format("{}{}: {}.", description.empty() ? "" : " ", row.label, row.text);
  }
  return Drawing(chart.id, chart.heading, description, y + kRow / 2 + 4,
                 Path("grid", grid) + content) +
         Key(chart);
}

}  // namespace planish::lab
