#include "lab/report/arena_html.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "lab/analysis/format.h"
#include "lab/base/format_integer.h"
#include "lab/report/overview.h"
#include "lab/report/pieces.h"

namespace planish::lab {
namespace {

std::string RateText(double rate) { return fmt::format("{:g}", rate); }

// Returns text like "4 of 5 finished" for the runs at the chosen rate, or what they wait for.
std::string RunsText(const ArenaTask& arena, const ArenaEntry& entry) {
  if (!entry.chosen) {
    int ended = 0, diverged = 0;
    for (const RateTrial& trial : entry.trials) {
      ended += trial.runs;
      diverged += trial.diverged;
    }
    const auto all = static_cast<int>(arena.rates.size()) * arena.tuning_seeds;
    if (ended == all && diverged == all) return "diverged at every rate";
    return fmt::format("tuning: {} of {} runs", ended, all);
  }
  std::string text = fmt::format("{} finished", entry.values.size());
  if (entry.diverged > 0) text += fmt::format(", {} diverged", entry.diverged);
  return text;
}

// Returns how the entry compares with the first one.
Markup VerdictOf(const ArenaTask& arena, size_t i) {
  const ArenaEntry& entry = arena.entries[i];
  if (entry.values.empty()) return kMissing;
  if (i == 0) return "best mean";
  if (!entry.bound) return "too few seeds";
  return entry.is_told_apart ? Badge("worse") : Markup("not told apart");
}

// Returns the compared runs without usable predictions.
LeftOutRuns LeftOutOfArena(const ArenaTask& arena) {
  LeftOutRuns left_out;
  for (const ArenaEntry& entry : arena.entries) {
    const Group group{entry.label, entry.runs};
    left_out += LeftOutOf({&group}, *arena.metric);
  }
  return left_out;
}

Markup RenderRanking(const ArenaTask& arena, bool has_items) {
  Markup rows;
  for (size_t i = 0; i < arena.entries.size(); ++i) {
    const ArenaEntry& entry = arena.entries[i];
    const bool has_values = !entry.values.empty();
    Markup row = NumberCell(has_values ? std::to_string(i + 1) : std::string(kMissing)) +
                 RowHead(entry.label);
    row += NumberCell(has_values ? FormatEstimate(*arena.metric, entry.estimate)
                                 : std::string(kMissing));
    row += NumberCell(i > 0 && has_values ? DifferenceText(*arena.metric, entry.behind)
                                          : std::string(kMissing));
    if (has_items) {
      const std::string items =
          SeedsAndItemsText(*arena.metric, entry.behind, TwoWayBehind(arena, entry));
      row += NumberCell(items.empty() ? std::string(kMissing) : items);
    }
    row +=
        NumberCell(entry.bound ? FormatBare(*arena.metric, *entry.bound) : std::string(kMissing));
    row += Cell(VerdictOf(arena, i));
    row += NumberCell(entry.chosen ? RateText(entry.rate()) + (entry.IsAtTheEdge() ? "*" : "")
                                   : std::string(kMissing));
    row += NumberCell(entry.seconds_per_step ? FormatSignificant(1e3 * *entry.seconds_per_step, 3)
                                             : std::string(kMissing));
    row += Cell(RunsText(arena, entry));
    rows += Tag("tr", {}, row);
  }
  Markup head = NumberHead("rank") + Head("norm") + NumberHead(LabelWithUnit(*arena.metric)) +
                NumberHead("minus the first");
  if (has_items) head += NumberHead("over seeds and test items");
  head += NumberHead("least clear difference") + Head("compared with the first") +
          NumberHead("learning rate") + NumberHead("ms a step") + Head("runs");
  return ScrollingTable("Ranking", Tag("tr", {}, head), rows);
}

Markup RenderTuning(const ArenaTask& arena) {
  Markup head = Head("norm");
  for (const double rate : arena.rates) head += NumberHead(RateText(rate));
  Markup rows;
  for (const ArenaEntry& entry : arena.entries) {
    Markup row = RowHead(entry.label);
    for (const double rate : arena.rates) {
      std::string text(kMissing);
      for (const RateTrial& trial : entry.trials) {
        if (trial.rate != rate || trial.runs == 0) continue;
        text = trial.runs == trial.diverged ? "diverged" : FormatBare(*arena.chosen_by, trial.mean);
        if (trial.diverged > 0 && trial.runs > trial.diverged) {
          text += fmt::format(" ({} diverged)", trial.diverged);
        }
      }
      row += NumberCell(text);
    }
    rows += Tag("tr", {}, row);
  }
  return Details("Tuning: " + LabelWithUnit(*arena.chosen_by) + " by learning rate",
                 ScrollingTable("Tuning", Tag("tr", {}, head), rows));
}

// Renders the values of the entries with values, the best first.
Markup RenderOverview(const ArenaTask& arena, const std::string& id) {
  IntervalChart chart{.id = id,
                      .heading = LabelWithUnit(*arena.metric) + " with its 95% interval",
                      .x_name = fmt::format("{}: {} is better", LabelWithUnit(*arena.metric),
                                            arena.metric->lower_is_better ? "left" : "right"),
                      .reference = std::nullopt,
                      .x_text = [](double value) { return FormatSignificant(value, 3); },
                      .rows = {}};
  std::vector<std::string> norms;
  for (const ArenaEntry& entry : arena.entries) norms.push_back(entry.label);
  const std::vector<LineStyle> styles = StylesOf(norms);
  for (size_t i = 0; i < arena.entries.size(); ++i) {
    const Estimate& value = arena.entries[i].estimate;
    if (arena.entries[i].values.empty()) continue;
    IntervalRow row{.label = arena.entries[i].label,
                    .style = styles[i],
                    .low = Shown(*arena.metric, value.low()),
                    .middle = Shown(*arena.metric, value.mean),
                    .high = Shown(*arena.metric, value.high()),
                    .values = {},
                    .text = FormatEstimate(*arena.metric, value) + " " + arena.metric->unit};
    if (value.count <= 2) {
      row.low = row.high = row.middle;
      for (const auto& [seed, one] : arena.entries[i].values) {
        row.values.push_back(Shown(*arena.metric, one));
      }
    }
    chart.rows.push_back(std::move(row));
  }
  return chart.rows.empty() ? Markup() : RenderIntervals(chart);
}

Summary SummaryOf(const ArenaTask& arena, const std::string& id) {
  Summary summary;
  summary.asked = fmt::format(
      "Asked: which norm is best if every norm is tuned equally? Each of {} has {} learning rates "
      "and {}.",
      Count(std::ssize(arena.entries), "norm"), arena.rates.size(),
      Count(arena.tuning_seeds, "tuning seed"));
  size_t worse = 0, equal = 0;
  for (size_t i = 1; i < arena.entries.size(); ++i) {
    if (arena.entries[i].values.empty() || !arena.entries[i].bound) continue;
    ++(arena.entries[i].is_told_apart ? worse : equal);
  }
  const ArenaEntry& first = arena.entries.front();
  const auto words = [&](const char* before, const char* after) {
    return fmt::format("Found: {}{} has the best mean {}, {}{}", before, first.label,
                       arena.metric->label, FormatValue(*arena.metric, first.estimate.mean), after);
  };
  if (first.values.empty()) {
    summary.found = "Found: no values yet.";
  } else if (equal == 0) {
    summary.found = words("", worse > 0 ? "; all others are worse." : ".");
  } else {
    summary.found =
        words("no norm is surely best. ",
              fmt::format("; {} more can be as good, {} are worse.", equal, worse).c_str());
  }
  summary.sure = fmt::format(
      "How sure: {} that took no part in the tuning are compared{}. A norm is called worse only if "
      "that can be said of all such norms together with 95% confidence.",
      Count(arena.seeds, "seed"), OnTestCases(*arena.config));
  summary.chart = RenderOverview(arena, id + "-overview");
  summary.tiles = {{worse, "worse", "than " + first.label}, {equal, "can be as good", ""}};
  return summary;
}

}  // namespace

std::string ArenaTitle(const ArenaTask& arena) {
  return fmt::format("Arena: {} ({})", arena.config->report.title, arena.config->data.name);
}

Part RenderArena(const ArenaTask& arena, const std::string& id) {
  Part part{.id = id,
            .title = ArenaTitle(arena),
            .source = fmt::format("Norms at equal tuning: task {}, preset {}.", arena.config->task,
                                  arena.config->preset),
            .summary = SummaryOf(arena, id),
            .body = {},
            .links = {{id + "-ranking", "Ranking"}},
            .details = {}};
  const LeftOutRuns left_out = LeftOutOfArena(arena);
  const bool has_items = left_out.all > left_out.missing;
  std::vector<std::string> notes = {
      "Values are means ± half-widths of 95% intervals over seeds that did not take part in the "
      "choice of the rate. The rate is the one with the best mean validation metric of the tuning "
      "seeds; a rate at which runs diverge counts as worse than any other.",
      "Differences are paired by seed. A norm is worse than the first only if it is behind by more "
      "than its least clear difference, which grows with the spread over seeds and with the number "
      "of norms (one-sided Student's t with Bonferroni's correction). So the truly best norm is "
      "the first or one that is not told apart from it, with 95% confidence, although the data "
      "chose the first.",
      "* the lowest or highest rate of the grid: a rate outside of it can be better.",
      "Milliseconds a step are training time without evaluations, on the machine as it was; "
      "several runs at once share it."};
  if (has_items) {
    notes.emplace_back(
        "Over seeds and test items: 95% interval of a bootstrap that draws seeds and test items "
        "again, with replacement. It also covers what another test set of this size would change. "
        "It is not corrected for the number of norms, and the ranking does not go by it.");
  }
  for (std::string& line : left_out.Text()) notes.push_back(std::move(line));
  part.body = Fold(part.links.back(),
                   RenderRanking(arena, has_items) + Tag("div", {{"class", "note"}}, List(notes)));
  if (arena.chosen_by) part.details = RenderTuning(arena);
  return part;
}

std::string BriefOfArena(const ArenaTask& arena) {
  std::vector<std::string> equal;
  for (size_t i = 1; i < arena.entries.size(); ++i) {
    if (!arena.entries[i].values.empty() && !arena.entries[i].is_told_apart) {
      equal.push_back(arena.entries[i].label);
    }
  }
  const ArenaEntry& first = arena.entries.front();
  std::string text = ArenaTitle(arena) + ": ";
  if (first.values.empty()) return CleanText(text + "no values yet") + "\n";
  text += fmt::format("{} {} is {} {}", LabelWithUnit(*arena.metric),
                      FormatEstimate(*arena.metric, first.estimate),
                      equal.empty() ? "best, with" : "the best mean, with", first.label);
  if (!equal.empty()) text += fmt::format("; not told apart: {}", fmt::join(equal, "; "));
  return CleanText(text) + "\n";
}

std::string BriefRanking(const std::vector<Run>& runs) {
  std::string text;
  for (const ArenaTask& arena : FindArenas(runs)) text += BriefOfArena(arena);
  return text.empty() ? text : "\nEach at its own learning rate:\n" + text;
}

}  // namespace planish::lab
