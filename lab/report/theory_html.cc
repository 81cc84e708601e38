#include "lab/report/theory_html.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "lab/analysis/format.h"
#include "lab/report/overview.h"
#include "lab/report/pieces.h"
#include "lab/report/plot.h"

namespace planish::lab {
namespace {

// A value of a setting: numbers, texts and lists of texts.
std::string ValueText(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    std::vector<std::string> parts;
    for (const auto& part : value) parts.push_back(ValueText(part));
    return fmt::format("{}", fmt::join(parts, ", "));
  }
  return value.is_number() ? fmt::format("{:.10g}", value.get<double>()) : value.dump();
}

// The analysis, and the run that it reads.
std::string HeadingOf(const TheoryResult& result) {
  const auto run = result.settings.find("run");
  return run == result.settings.end() ? result.title
                                      : fmt::format("{}: {}", result.title, ValueText(*run));
}

std::string CommandOf(const TheoryResult& result) {
  std::vector<std::string> settings;
  for (const auto& [name, value] : result.settings.items()) {
    if (name != "run") settings.push_back(fmt::format("{} {}", name, ValueText(value)));
  }
  return fmt::format("planish analyze {}: {}.", result.name, fmt::join(settings, "; "));
}

Markup RenderStatements(const TheoryResult& result) {
  Markup items;
  for (const TheoryStatement& statement : result.statements) {
    items += Tag("li", {}, Badge(TextOf(statement.verdict)),
                 Tag("span", {}, statement.text,
                     Tag("span", {{"class", "aside"}},
                         fmt::format("{}. Measured: {}.", statement.source, statement.measured))));
  }
  return Tag("ul", {{"class", "findings statements"}}, items);
}

Markup RenderTheoryTable(const TheoryTable& table) {
  // A column of numbers is aligned to the right.
  std::vector<bool> is_number(table.head.size(), true);
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      is_number[i] = is_number[i] && std::holds_alternative<double>(row[i]);
    }
  }
  Markup head, rows;
  for (size_t i = 0; i < table.head.size(); ++i) {
    head += is_number[i] ? NumberHead(table.head[i]) : Head(table.head[i]);
  }
  for (const auto& row : table.rows) {
    Markup cells;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string text = TextOf(row[i]);
      cells += i == 0 ? RowHead(text) : is_number[i] ? NumberCell(text) : Cell(text);
    }
    rows += Tag("tr", {}, cells);
  }
  return Tag("p", {}, table.caption) + ScrollingTable(table.caption, Tag("tr", {}, head), rows);
}

// Logarithmic axes of a small range have few labels.
bool IsWide(double low, double high) { return high >= 4 * low; }

bool IsShown(double value, bool log) { return std::isfinite(value) && (!log || value > 0); }

std::string TickText(double value) { return fmt::format("{:.4g}", value); }

// Returns the chart, without points that its axes cannot show; no lines if none is left.
Plot PlotOf(const TheoryChart& chart, const std::string& id) {
  Plot plot{
      .id = id,
      .heading = chart.heading,
      .description = fmt::format("Line chart of {} against {}.", chart.y_label, chart.x_label),
      .x = {},
      .y = {},
      .x_name = chart.x_label,
      .x_text = TickText,
      .y_text = TickText,
      .lines = {}};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double low_x = kInfinity, high_x = -kInfinity, low_y = kInfinity, high_y = -kInfinity;
  std::vector<std::string> names;
  for (const TheoryLine& line : chart.lines) names.push_back(line.name);
  const std::vector<LineStyle> styles = StylesOf(names);
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    const TheoryLine& line = chart.lines[i];
    PlotLine drawn{.name = line.name,
                   .style = styles[i],
                   .points = {},
                   .has_band = false,
                   .thin = {},
                   .crosses = {}};
    for (auto [x, y] : line.points) {
      if (!IsShown(x, chart.log_x) || !IsShown(y, chart.log_y)) continue;
      x = std::clamp(x, chart.log_x ? kMinPlotted : -kMaxPlotted, kMaxPlotted);
      y = std::clamp(y, chart.log_y ? kMinPlotted : -kMaxPlotted, kMaxPlotted);
      drawn.points.push_back({.x = x,
                              .y = y,
                              .low = y,
                              .high = y,
                              .at = fmt::format("{} {:.4g}", chart.x_label, x),
                              .value = FormatSignificant(y, 3)});
      low_x = std::min(low_x, x), high_x = std::max(high_x, x);
      low_y = std::min(low_y, y), high_y = std::max(high_y, y);
    }
    if (drawn.points.empty()) continue;
    plot.description += fmt::format(" {}: from {} to {}.", line.name, drawn.points.front().value,
                                    drawn.points.back().value);
    plot.lines.push_back(std::move(drawn));
  }
  if (plot.lines.empty()) return plot;
  plot.x = SpacedAxis(low_x, high_x, chart.log_x && IsWide(low_x, high_x));
  plot.y = SpacedAxis(low_y, high_y, chart.log_y && IsWide(low_y, high_y));
  return plot;
}

// Renders charts `first` to `last`. Charts with the same lines share a legend.
Markup RenderTheoryCharts(const TheoryResult& result, size_t first, size_t last,
                          const std::string& id) {
  Markup content, figures;
  std::vector<LegendEntry> legend;
  const auto close = [&] {
    if (!figures.empty()) {
      content += RenderLegend(legend) + Tag("div", {{"class", "charts"}}, figures);
    }
    figures = {};
  };
  for (size_t i = first; i < std::min(last, result.charts.size()); ++i) {
    const TheoryChart& chart = result.charts[i];
    const Plot plot = PlotOf(chart, fmt::format("{}-c{}", id, i));
    if (plot.lines.empty()) continue;
    std::vector<LegendEntry> entries;
    for (const PlotLine& line : plot.lines) entries.push_back({line.name, line.style});
    if (entries != legend) close();
    legend = std::move(entries);
    figures += Tag("figure", {},
                   Tag("figcaption", {}, fmt::format("{}: {}", chart.heading, chart.y_label)),
                   RenderPlot(plot));
  }
  close();
  return content;
}

// Number of an analysis' charts outside of the appendix.
constexpr size_t kMaxCharts = 2;

Markup RenderResult(const TheoryResult& result, const std::string& id) {
  return Tag("div", {{"class", "panel"}}, RenderStatements(result),
             RenderTheoryCharts(result, 0, kMaxCharts, id));
}

Markup RenderDetails(const TheoryResult& result, const std::string& id) {
  Markup content = RenderTheoryCharts(result, kMaxCharts, result.charts.size(), id);
  for (const TheoryTable& table : result.tables) content += RenderTheoryTable(table);
  return Tag("div", {{"class", "panel"}}, Tag("h4", {}, HeadingOf(result)), content,
             Tag("p", {{"class", "note"}}, CommandOf(result)));
}

size_t CountOf(const std::vector<TheoryResult>& results, TheoryVerdict verdict) {
  size_t count = 0;
  for (const TheoryResult& result : results) {
    count += static_cast<size_t>(
        std::ranges::count(result.statements, verdict, &TheoryStatement::verdict));
  }
  return count;
}

// The number of statements with each verdict, in the order of their meaning.
std::string CountsOf(const std::vector<TheoryResult>& results) {
  std::vector<std::string> counts;
  size_t all = 0;
  for (const TheoryVerdict verdict : kTheoryVerdicts) {
    const size_t count = CountOf(results, verdict);
    all += count;
    if (count > 0) counts.push_back(fmt::format("{}: {}", TextOf(verdict), count));
  }
  if (counts.empty()) return "no statements";
  return fmt::format("{} statements; {}", all, fmt::join(counts, ", "));
}

Outcome OutcomeOf(TheoryVerdict verdict) {
  switch (verdict) {
    case TheoryVerdict::kHolds:
    case TheoryVerdict::kHoldsCorrected:
      return Outcome::kAgrees;
    case TheoryVerdict::kFails:
      return Outcome::kDiffers;
    case TheoryVerdict::kHoldsInPart:
    case TheoryVerdict::kCannotTell:
      break;
  }
  return Outcome::kOpen;
}

// Renders the verdicts of each analysis. An outline is a statement that holds with a correction.
Summary SummaryOf(const std::vector<TheoryResult>& results, const std::string& id) {
  OutcomeChart chart{.id = id + "-overview",
                     .heading = "The statements of each analysis",
                     .columns = {},
                     .rows = {}};
  size_t all = 0;
  for (const TheoryResult& result : results) {
    OutcomeChart::Row* row = nullptr;
    for (OutcomeChart::Row& other : chart.rows) {
      if (other.label == result.name) row = &other;
    }
    if (!row) {
      chart.rows.push_back({result.name, {}, ""});
      row = &chart.rows.back();
    }
    for (const TheoryStatement& statement : result.statements) {
      ++all;
      row->cells.push_back(
          {OutcomeOf(statement.verdict), statement.verdict != TheoryVerdict::kHoldsCorrected});
      row->text += fmt::format("{}{}", row->text.empty() ? "" : ", ", TextOf(statement.verdict));
    }
  }
  for (OutcomeChart::Row& row : chart.rows) {
    std::ranges::stable_sort(row.cells, {}, &OutcomeCell::outcome);
  }
  std::erase_if(chart.rows, [](const OutcomeChart::Row& row) { return row.cells.empty(); });
  Summary summary;
  summary.asked = fmt::format(
      "Asked: do {} statements of the papers' theory hold? Each is computed in double precision, "
      "or "
      "measured in trained runs.",
      all);
  summary.found = fmt::format(
      "Found: {} hold, {} only with a correction that its measurement names; {} hold in some cases "
      "only, and {} do not hold.",
      CountOf(results, TheoryVerdict::kHolds) + CountOf(results, TheoryVerdict::kHoldsCorrected),
      CountOf(results, TheoryVerdict::kHoldsCorrected),
      CountOf(results, TheoryVerdict::kHoldsInPart), CountOf(results, TheoryVerdict::kFails));
  summary.sure =
      "How sure: identities are checked to rounding errors. Statements about training rest on the "
      "runs and seeds that their measurement names.";
  if (!chart.rows.empty()) {
    chart.words = {"holds", "holds with a correction",      "does not hold", "",
                   "",      "holds in part, or cannot tell"};
    summary.chart = RenderOutcomes(chart);
  }
  for (const TheoryVerdict verdict : kTheoryVerdicts) {
    summary.tiles.push_back({CountOf(results, verdict), std::string(TextOf(verdict)), ""});
  }
  return summary;
}

}  // namespace

Part RenderTheorySection(const std::vector<TheoryResult>& found, const std::string& id) {
  // An analysis of random data comes before those of runs.
  std::vector<TheoryResult> results = found;
  std::ranges::stable_sort(results, {}, [](const TheoryResult& result) {
    return std::pair(result.name, result.settings.contains("run"));
  });
  Part part{.id = id,
            .title = std::string(kTheoryTitle),
            .source = "Statements of the papers' theory, measured by planish analyze.",
            .summary = SummaryOf(results, id),
            .body = {},
            .links = {},
            .details = {}};
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string own = fmt::format("{}-{}", id, i);
    AddSection(part, fmt::format("-{}", i), HeadingOf(results[i]), RenderResult(results[i], own));
    part.details += RenderDetails(results[i], own);
  }
  part.body += Tag("p", {{"class", "note"}},
                   "Holds with a correction: with a condition or a correction that the measurement "
                   "names. Holds in part: in some of several cases. Cannot tell: the intervals "
                   "include both answers. Logarithmic axes leave out values of 0.");
  return part;
}

std::string BriefOfTheory(const std::vector<TheoryResult>& results) {
  if (results.empty()) return "";
  return CleanText(fmt::format("{}: {}\n", kTheoryTitle, CountsOf(results)));
}

}  // namespace planish::lab
