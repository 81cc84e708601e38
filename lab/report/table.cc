#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "lab/analysis/findings.h"
#include "lab/analysis/format.h"
#include "lab/analysis/summary.h"
#include "lab/base/format_integer.h"
#include "lab/error.h"
#include "lab/report/markup.h"
#include "lab/report/pieces.h"
#include "lab/report/report.h"

namespace planish::lab {
namespace {

using Row = std::vector<std::string>;

std::string EstimateText(const MetricSpec& metric, const SeedValues& values) {
  return values.empty() ? "-" : FormatEstimate(metric, EstimateMean(values));
}

std::string SecondsText(const Group& group) {
  const Estimate seconds = TrainingSeconds(group);
  if (seconds.count == 0) return "-";
  return FormatSeconds(seconds.mean) + (OtherLoadOf(group) == OtherLoad::kDisturbed ? "†" : "");
}

// Paints the marker at the beginning of each line but the first of an aligned table.
std::string WithMarkers(const std::string& table, const std::vector<LineStyle>& styles,
                        const TableOptions& options) {
  if (!options.colour) return table;
  std::string text;
  size_t row = 0;
  for (size_t begin = 0; begin < table.size(); ++row) {
    const size_t end = table.find('\n', begin);
    std::string line = table.substr(begin, end - begin + 1);
    begin = end == table.npos ? table.size() : end + 1;
    if (row > 0 && row <= styles.size()) {
      const std::string marker = TerminalMarker(styles[row - 1], false);
      const size_t at = line.find(marker);
      if (at != line.npos) {
        line.replace(at, marker.size(), TerminalMarker(styles[row - 1], true));
      }
    }
    text += line;
  }
  return text;
}

std::string RenderPanel(const Section& section, const Panel& panel, const TableOptions& options) {
  const ReportSpec& report = section.config->report;
  const MetricSpec* metric = section.Find(report.headline);
  const Measure measure = HeadlineMeasure(section);
  const Group* baseline = panel.Find(report.baseline);
  // A test metric exists only at the evaluation that validation chose.
  const bool has_final = metric && std::ranges::any_of(panel.groups, [&](const Group& group) {
                           return !ValuesOf(group, metric->name, Measure::kFinal).empty();
                         });
  const bool has_best = metric && std::ranges::any_of(panel.groups, [&](const Group& group) {
                          return !ValuesOf(group, metric->name, Measure::kBest).empty();
                        });
  const bool only_best = has_best && !has_final;
  Row head = {CleanLine(Words(report.compare)), "seeds"};
  if (metric) {
    const std::string label = CleanLine(LabelWithUnit(*metric));
    if (!only_best) head.push_back("final " + label);
    head.push_back("best");
    head.push_back("against " + CleanLine(report.baseline));
  }
  head.push_back("seconds");
  std::vector<Row> rows = {head};
  std::vector<LineStyle> styles;
  bool disturbed = false;
  for (const Group& group : panel.groups) {
    styles.push_back(StyleOf(section, group.value));
    const int finished = group.CountOf(Status::kFinished);
    const auto all = static_cast<int>(group.runs.size());
    Row row = {TerminalMarker(styles.back(), false) + " " + CleanLine(group.value),
               finished == all ? std::to_string(all) : fmt::format("{}/{}", finished, all)};
    if (metric) {
      if (!only_best) {
        row.push_back(EstimateText(*metric, ValuesOf(group, metric->name, Measure::kFinal)));
      }
      row.push_back(EstimateText(*metric, ValuesOf(group, metric->name, Measure::kBest)));
      std::string against = "-";
      if (baseline && &group != baseline && !IsSmoke(panel.config().preset)) {
        const Comparison comparison = Compare(group, *baseline, *metric, measure);
        if (comparison.difference.count > 0) {
          against = comparison.better > 0   ? "better"
                    : comparison.better < 0 ? "worse"
                                            : "cannot tell";
        }
      }
      row.push_back(against);
    }
    row.push_back(SecondsText(group));
    disturbed |= OtherLoadOf(group) == OtherLoad::kDisturbed;
    rows.push_back(row);
  }
  std::string text = WithMarkers(Aligned(rows, options), styles, options);
  if (disturbed) {
    text += Wrapped("†: other programs took CPU time from the training.",
                    static_cast<size_t>(options.width), "");
  }
  return text;
}

// A run with fewer updates has hardly begun to learn.
constexpr int64_t kFewUpdates = 100;

// Returns the least and the largest number of updates of the finished runs; 0 if there is none.
std::pair<int64_t, int64_t> UpdatesOf(const Section& section) {
  std::vector<int64_t> steps;
  for (const Run* run : section.runs) {
    if (StatusOf(*run) == Status::kFinished) steps.push_back(run->result->steps);
  }
  if (steps.empty()) return {0, 0};
  const auto [fewest, most] = std::ranges::minmax(steps);
  return {fewest, most};
}

std::string UpdatesText(int64_t fewest, int64_t most) {
  if (most == 0) return "";
  if (fewest == most) return fmt::format(", {}", Count(most, "update"));
  return fmt::format(", {} to {}", FormatInteger(fewest), Count(most, "update"));
}

}  // namespace

std::string RenderTable(const std::vector<Run>& runs, const TableOptions& options) {
  if (runs.empty()) throw RunError("[RenderTable] runs must not be empty");
  const auto width = static_cast<size_t>(std::max(options.width, 20));
  std::string text;
  for (const Section& section : Summarize(runs)) {
    const RunConfig& config = *section.config;
    if (!text.empty()) text += "\n";
    const std::string heading =
        CleanLine(fmt::format("{}: {} ({})", config.task, config.report.title, section.data));
    text += Painted(Cut(heading, width), "1", options.colour) + "\n";
    const auto [fewest, most] = UpdatesOf(section);
    text += Wrapped(
        CleanLine(fmt::format("{}{}", fmt::join(section.common, ", "), UpdatesText(fewest, most))),
        width, "");
    for (const Panel& panel : section.panels) {
      text += "\n";
      if (!panel.title.empty()) {
        text += Painted(Cut(CleanLine(panel.title), width), "1", options.colour) + "\n";
      }
      text += RenderPanel(section, panel, options);
    }
    if (section.Find(config.report.headline)) {
      // A test metric can have no other value.
      const bool only_best = std::ranges::none_of(section.runs, [&](const Run* run) {
        return run->result && run->result->final_values.contains(config.report.headline);
      });
      const std::string best =
          only_best ? CleanLine(LabelWithUnit(*section.Find(config.report.headline))) + " " : "";
      text += "\n" + Wrapped("±: half-width of the mean's 95% confidence interval; best: " + best +
                                 "at the evaluation with the best validation result; seconds: "
                                 "training time.",
                             width, "");
    }
    const bool has_smoke = std::ranges::any_of(
        section.panels, [](const Panel& panel) { return IsSmoke(panel.config().preset); });
    if (!has_smoke && most > 0 && fewest < kFewUpdates) {
      text += Wrapped(
          fmt::format("Few updates: a norm that learns later can still be better. More epochs or "
                      "smaller batches give more than {}.",
                      fewest),
          width, "");
    }
    if (has_smoke) {
      text += Wrapped("Smoke runs only check that the task runs: no verdict.", width, "");
    }
    const std::vector<std::string> incomplete = Incomplete(section);
    if (!incomplete.empty()) text += "\n";
    for (const std::string& line : incomplete) text += Wrapped(CleanLine(line), width, "  ");
  }
  return text;
}

}  // namespace planish::lab
