#include "lab/report/pieces.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/analysis/format.h"

namespace planish::lab {

Markup Cell(const Markup& content) { return Tag("td", {}, content); }

Markup NumberCell(const Markup& content) { return Tag("td", {{"class", "number"}}, content); }

Markup Head(const Markup& content) { return Tag("th", {{"scope", "col"}}, content); }

Markup NumberHead(const Markup& content) {
  return Tag("th", {{"scope", "col"}, {"class", "number"}}, content);
}

Markup RowHead(const Markup& content) { return Tag("th", {{"scope", "row"}}, content); }

Markup ScrollingTable(const std::string& label, const Markup& head, const Markup& body,
                      const std::string& kind) {
  return Tag("div",
             {{"class", kind.empty() ? "scroll" : "scroll " + kind},
              {"role", "region"},
              {"tabindex", "0"},
              {"aria-label", label}},
             Tag("table", {}, Tag("thead", {}, head), Tag("tbody", {}, body)));
}

Markup Details(const std::string& summary, const Markup& content) {
  return Tag("details", {}, Tag("summary", {}, summary), content);
}

Markup List(const std::vector<std::string>& lines) {
  Markup items;
  for (const std::string& line : lines) items += Tag("li", {}, line);
  return Tag("ul", {}, items);
}

Markup Fact(const std::string& term, const Markup& content) {
  return Tag("div", {}, Tag("dt", {}, term), Tag("dd", {}, content));
}

Markup Badge(std::string_view word) {
  std::string name(word);
  std::replace(name.begin(), name.end(), ' ', '-');
  return Tag("span", {{"class", "badge " + name}}, word);
}

LineStyle StyleOf(const Section& section, std::string_view value) {
  return StylesOf(section.values)[static_cast<size_t>(section.IndexOf(value))];
}

std::string OnTestCases(const RunConfig& config) {
  const auto test = config.data.sizes.find("test");
  return test == config.data.sizes.end() ? "" : " on " + Count(test->second, "test case");
}

namespace {

std::string WithSign(const std::string& text, double value) {
  if (text[0] == '-') return "−" + text.substr(1);
  return value == 0 ? text : "+" + text;
}

// Returns two values with their signs, with `between` between them.
std::string TwoWithSigns(const MetricSpec& metric, double a, double b, std::string_view between) {
  const std::string text = FormatTwo(metric, a, b);
  constexpr std::string_view kAnd = " and ";
  const size_t end = text.find(kAnd);
  return fmt::format("{}{}{}", WithSign(text.substr(0, end), a), between,
                     WithSign(text.substr(end + kAnd.size()), b));
}

}  // namespace

std::string DifferenceText(const MetricSpec& metric, const Estimate& difference) {
  if (difference.count == 0) return std::string(kMissing);
  if (difference.half_width == 0) {  // no interval
    return WithSign(FormatBare(metric, difference.mean), difference.mean);
  }
  if (difference.count != 2) return WithSign(FormatEstimate(metric, difference), difference.mean);
  return TwoWithSigns(metric, difference.min, difference.max, " and ");
}

std::string SeedsAndItemsText(const MetricSpec& metric, const Estimate& difference,
                              const TwoWayResult& result) {
  if (!result.interval || difference.count <= 2) return "";
  std::string text = TwoWithSigns(metric, result.interval->low, result.interval->high, " to ");
  if (SureSign(difference) != 0 && result.interval->Includes(0)) text += ", includes 0";
  return text;
}

Markup RenderLegend(const std::vector<LegendEntry>& entries) {
  Markup items;
  for (const LegendEntry& s : entries) {
    items += Tag(
        "li", {},
        Tag("label", {},
            Element(
                "input",
                {{"type", "checkbox"}, {"checked", ""}, {"hidden", ""}, {"data-series", s.name}}),
            RenderSample(s.style), s.name));
  }
  return Tag("ul", {{"class", "legend"}}, items);
}

Markup RenderLegend(const std::vector<Series>& series) {
  std::vector<LegendEntry> entries;
  for (const Series& s : series) entries.push_back({s.name, s.style});
  return RenderLegend(entries);
}

std::string ChartNote(const std::vector<Series>& series, const Axis& axis) {
  bool interval = false;
  bool range = false;
  bool diverged = false;
  bool unfinished = false;
  bool shorter = false;
  for (const Series& s : series) {
    interval |= s.curve.seeds > 2;
    range |= s.curve.seeds == 2;
    for (const Curve::Seed& seed : s.curve.single) {
      diverged |= StatusOf(*seed.run) == Status::kDiverged;
      unfinished |= StatusOf(*seed.run) == Status::kUnfinished;
      shorter |=
          StatusOf(*seed.run) == Status::kFinished && seed.points.size() > s.curve.mean.size();
    }
  }
  std::string note;
  if (interval || range) note += "Thick lines: mean over seeds. Thin lines: single seeds. ";
  if (interval) note += "Bands: 95% interval of the mean, clipped at the edge of the chart. ";
  if (range) note += "With two seeds, the band spans both. ";
  if (shorter)
    note += "The mean is drawn at the steps at which all finished seeds were evaluated. ";
  if (diverged) note += "A cross is the end of a run that diverged; the mean excludes it. ";
  if (unfinished)
    note += "Unfinished runs are thin lines; the mean excludes them if other runs have finished. ";
  if (axis.has_zero) {
    note += "Values of 0 are drawn at the lower edge of the logarithmic axis. ";
  }
  note += axis.log ? "Vertical axis: logarithmic." : "Vertical axis: linear.";
  return note;
}

Markup RenderFigure(const Chart& chart) {
  return Tag("figure", {}, Tag("figcaption", {}, chart.heading), RenderChart(chart));
}

}  // namespace planish::lab
