#include "lab/analysis/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lab/analysis/format.h"
#include "lab/base/format_integer.h"

namespace planish::lab {
namespace {

std::string AtPanel(const Panel& panel) {
  return panel.title.empty() ? "" : "With " + panel.title + ", ";
}

std::string Capitalized(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text;
}

// Returns text like "mean of 2 seeds, 1 diverged", to show that the mean is over the others.
std::string MeanOf(int count, const Group& group) {
  std::string text = count == 1 ? "one seed" : fmt::format("mean of {} seeds", count);
  const int diverged = group.CountOf(Status::kDiverged);
  if (diverged > 0) text += fmt::format(", {} diverged", diverged);
  return text;
}

// Returns text like "5.13% test error" or "a training NLL of 0.412 nats".
std::string ValueOf(const MetricSpec& metric, double value) {
  if (metric.unit == "%") return FormatValue(metric, value) + " " + metric.label;
  return fmt::format("a {} of {}", metric.label, FormatValue(metric, value));
}

// Returns text like "95% interval 0.30 to 1.30 points", or both values of two seeds. Adds the
// number of pairs if it differs from the number of seeds.
std::string IntervalText(const MetricSpec& metric, const Comparison& comparison) {
  const Estimate& difference = comparison.difference;
  std::string text =
      difference.count == 2
          ? fmt::format("the two seeds: {} and {}", FormatDifference(metric, difference.min),
                        FormatDifference(metric, difference.max))
          : "95% interval " + FormatDifferenceInterval(metric, difference);
  if (comparison.bounded == 0 && (comparison.difference.count != comparison.a.count ||
                                  comparison.difference.count != comparison.b.count)) {
    text += fmt::format(", over the {} that both have", Count(comparison.difference.count, "seed"));
  }
  return text;
}

// Returns true for a nonzero difference that is equal in every seed.
bool HasNoWidth(const Estimate& difference) {
  return difference.half_width == 0 && difference.mean != 0;
}

// Returns the finding for the difference of a and b.
Finding Judged(const MetricSpec& metric, const Comparison& comparison, const std::string& reached,
               const std::string& than) {
  const Estimate& difference = comparison.difference;
  if (difference.count == 0) {
    return {"no comparison",
            fmt::format("{}. No seed finished with both this and {}.", reached, than)};
  }
  const std::string amount = FormatDifference(metric, difference.mean);
  const std::string against =
      difference.mean == 0 ? "as much as " + than : amount + " than " + than;
  if (difference.count == 1) {
    const char* one = comparison.a.count == 1 && comparison.b.count == 1 ? "seed" : "pair of seeds";
    return {"cannot tell", fmt::format("{}, {}. One {} has no interval, so this can be chance.",
                                       reached, against, one)};
  }
  if (HasNoWidth(difference)) {
    return {"cannot tell",
            fmt::format("{}, {} in every seed. Equal differences do not show how much seeds vary.",
                        reached, against)};
  }
  if (difference.mean == 0 && difference.half_width == 0) {
    return {"cannot tell", fmt::format("{}, the same as {} in every seed.", reached, than)};
  }
  if (comparison.better == 0) {
    return {"cannot tell",
            fmt::format("{}, no clear difference from {}: {} ({}).", reached, than,
                        difference.mean == 0 ? "0" : amount, IntervalText(metric, comparison))};
  }
  return {comparison.better > 0 ? "better" : "worse",
          fmt::format("{}, {} ({}).", reached, against, IntervalText(metric, comparison))};
}

// Returns text like "final test error" or "steps to best".
std::string MeasureName(const MetricSpec& metric, Measure measure) {
  switch (measure) {
    case Measure::kFinal:
      return "final " + metric.label;
    case Measure::kBest:
      return metric.label + " (at the best validation result)";
    case Measure::kStepsToBest:
    case Measure::kSecondsToBest:
    case Measure::kStepsTo:
    case Measure::kCatchUp:
      return metric.label;
  }
  return "";
}

}  // namespace

std::vector<Finding> FindingsOf(const Section& section, const Panel& panel) {
  std::vector<Finding> findings;
  const ReportSpec& report = section.config->report;
  const MetricSpec* metric = section.Find(report.headline);
  if (!metric) return findings;
  const Measure measure = HeadlineMeasure(section);
  const Group* baseline = panel.Find(report.baseline);
  const std::string at = section.panels.size() > 1 ? AtPanel(panel) : "";
  for (const Group& group : panel.groups) {
    if (&group == baseline) continue;
    const std::string name = section.Named(group.value);
    const Estimate value = EstimateMean(ValuesOf(group, metric->name, measure));
    if (value.count == 0) {
      findings.push_back(
          {"no comparison", Capitalized(at + "no run with " + name + " has finished.")});
      continue;
    }
    const std::string reached =
        Capitalized(fmt::format("{}{} reached {} ({})", at, name, ValueOf(*metric, value.mean),
                                MeanOf(value.count, group)));
    if (!baseline) {
      findings.push_back(
          {"no comparison", fmt::format("{}. No run has {} and otherwise the same settings.",
                                        reached, section.Named(report.baseline))});
      continue;
    }
    findings.push_back(Judged(*metric, Compare(group, *baseline, *metric, measure), reached,
                              section.Named(baseline->value)));
  }
  if (IsSmoke(panel.config().preset)) {
    for (Finding& finding : findings) finding.word = "smoke run";
  }
  return findings;
}

std::string BriefOf(const Section& section, const Panel& panel, size_t width) {
  const ReportSpec& report = section.config->report;
  const MetricSpec* metric = section.Find(report.headline);
  if (!metric) return "";
  const Measure measure = HeadlineMeasure(section);
  const Group* baseline = panel.Find(report.baseline);

  struct Entry {
    const Group* group;
    Estimate value;
  };
  std::vector<Entry> entries;
  std::vector<std::string> unfinished;
  for (const Group& group : panel.groups) {
    const Estimate value = EstimateMean(ValuesOf(group, metric->name, measure));
    if (value.count > 0) {
      entries.push_back({&group, value});
    } else {
      unfinished.push_back(group.value);
    }
  }
  if (entries.empty()) return "";
  std::ranges::stable_sort(entries, [&](const Entry& a, const Entry& b) {
    if (a.group == baseline || b.group == baseline) return a.group == baseline;
    return metric->lower_is_better ? a.value.mean < b.value.mean : a.value.mean > b.value.mean;
  });

  int seeds = 0;
  for (const Entry& entry : entries) seeds = std::max(seeds, entry.value.count);
  const auto text = [&](const Entry& entry, bool first) {
    std::vector<std::string> notes;
    if (baseline && entry.group != baseline && entries[0].group == baseline) {
      const Comparison comparison = Compare(*entry.group, *baseline, *metric, measure);
      notes.push_back(comparison.better == 0
                          ? "cannot tell"
                          : FormatDifference(*metric, comparison.difference.mean));
    }
    if (entry.value.count < seeds) notes.push_back(Count(entry.value.count, "seed"));
    return fmt::format("{} with {}{}", FormatValue(*metric, entry.value.mean),
                       first ? section.Named(entry.group->value) : entry.group->value,
                       notes.empty() ? "" : fmt::format(" ({})", fmt::join(notes, ", ")));
  };
  std::vector<std::string> parts;
  for (size_t i = 0; i < entries.size(); ++i) parts.push_back(text(entries[i], i == 0));
  std::string end;
  if (!unfinished.empty()) {
    end = fmt::format("; no finished run with {}", fmt::join(unfinished, ", "));
  }
  if (IsSmoke(panel.config().preset)) {
    end += fmt::format(" ({})", EvidenceText(Evidence::kSmoke));
  }
  const auto line = [&](size_t left_out) {
    std::vector<std::string> shown = parts;
    // Drops the groups just above the worst, and keeps the worst.
    if (left_out > 0) {
      shown.erase(shown.end() - 1 - static_cast<std::ptrdiff_t>(left_out), shown.end() - 1);
      shown.insert(shown.end() - 1, fmt::format("{} others in between", left_out));
    }
    return Capitalized(fmt::format("{}{} ({}) was {}{}.", AtPanel(panel), metric->label,
                                   seeds == 1 ? "one seed" : fmt::format("mean of {} seeds", seeds),
                                   fmt::join(shown, ", "), end));
  };
  std::string brief = line(0);
  for (size_t left_out = 1; brief.size() > width && left_out + 3 <= parts.size(); ++left_out) {
    brief = line(left_out);
  }
  return brief;
}

std::string BriefOfClaims(const Section& section) {
  std::map<Verdict, int> counts;
  int all = 0;
  for (const ClaimResult& result : JudgeClaims(section, ClaimsOf(section.config->task))) {
    if (result.verdict == Verdict::kNotMeasured || result.verdict == Verdict::kNoVerdict) continue;
    ++counts[result.verdict];
    ++all;
  }
  if (all == 0) return "";
  std::vector<std::string> parts;
  for (const auto& [verdict, count] : counts) {
    parts.push_back(fmt::format("{} {}", VerdictText(verdict), count));
  }
  return fmt::format("Verdicts on published claims ({}): {}.", section.config->report.source,
                     fmt::join(parts, ", "));
}

std::string MethodOf(const Section& section) {
  const MetricSpec* metric = section.Find(section.config->report.headline);
  if (!metric) return "";
  const bool tuned = std::ranges::any_of(section.runs, &Run::is_rate_tuned);
  return fmt::format(
      "Metric: {}; {} is better. Differences are paired by seed: both runs start from the same "
      "weights and see the cases in the same order.{}",
      MeasureName(*metric, HeadlineMeasure(section)), metric->lower_is_better ? "lower" : "higher",
      tuned ? " Each has its own learning rate, which tuning chose." : "");
}

std::string MeasuredText(const Section& section, const ClaimResult& result) {
  const ClaimSpec& claim = result.claim;
  if (result.verdict == Verdict::kNotMeasured) {
    return fmt::format("No runs with {} and {} finished with these settings.",
                       section.Named(claim.better), section.Named(claim.worse));
  }
  const MetricSpec& metric = result.metric;
  const Comparison& comparison = result.contrast.comparison;
  const auto side = [&](const std::string& value, const Estimate& estimate) {
    const Group& group = *result.panel->Find(value);
    const int finished = group.CountOf(Status::kFinished);
    if (estimate.count == 0) {
      return finished == 0
                 ? fmt::format("{} diverged in {}", section.Named(value),
                               Count(group.CountOf(Status::kDiverged), "seed"))
                 : fmt::format("{} never in {}", section.Named(value), Count(finished, "seed"));
    }
    std::string seeds = MeanOf(estimate.count, group);
    const bool effort = result.measure == Measure::kStepsTo || result.measure == Measure::kCatchUp;
    if (effort && estimate.count < finished) {
      seeds += fmt::format(", never in {}", finished - estimate.count);
    }
    return fmt::format("{} {} ({})", section.Named(value), FormatValue(metric, estimate.mean),
                       seeds);
  };
  const std::string at = section.panels.size() > 1 ? AtPanel(*result.panel) : "";
  const std::string numbers =
      fmt::format("{}: {}, {}. ", Capitalized(at + MeasureName(metric, result.measure)),
                  side(claim.better, comparison.a), side(claim.worse, comparison.b));
  if (result.contrast.by_divergence) return numbers + "Every run of one norm diverged.";
  const Estimate& difference = comparison.difference;
  if (difference.count == 0) return numbers + "No seed finished with both.";
  if (difference.mean == 0 && difference.half_width == 0 && comparison.bounded == 0) {
    return numbers + "No difference in any seed.";
  }
  std::string amount = "Difference: " + FormatDifference(metric, difference.mean);
  if (comparison.bounded > 0) {
    amount = (difference.mean == 0
                  ? "No difference within these steps"
                  : "Difference: at least " + FormatDifference(metric, difference.mean)) +
             ", counting a run that never gets there with its last step";
  }
  if (difference.count == 1) return numbers + amount + ". One pair of seeds has no interval.";
  if (HasNoWidth(difference)) {
    return numbers + amount + " in every seed, so there is no interval.";
  }
  // The interval has a sign that the verdict does not follow.
  const std::string doubt =
      comparison.better != result.contrast.sign && !result.contrast.doubt.empty()
          ? "; " + result.contrast.doubt
          : "";
  std::string end = doubt + ".";
  if (result.contrast.margin) {
    end += fmt::format(" Up to {} worse counts as no worse.",
                       FormatSize(metric, *result.contrast.margin));
  }
  return numbers + amount + " (" + IntervalText(metric, comparison) + ")" + end;
}

std::vector<std::string> Incomplete(const Section& section) {
  std::vector<std::string> lines;
  for (const Panel& panel : section.panels) {
    for (const Group& group : panel.groups) {
      for (const Run* run : group.runs) {
        const Status status = StatusOf(*run);
        if (status == Status::kFinished) continue;
        const std::string who = fmt::format("{}{}, seed {}", AtPanel(panel),
                                            section.Named(group.value), run->config.seed);
        if (status == Status::kUnfinished) {
          const int64_t step = run->evaluations.empty() ? 0 : run->evaluations.back().step;
          lines.push_back(Capitalized(fmt::format("{}: not finished; last evaluation at step {}.",
                                                  who, FormatInteger(step))));
          continue;
        }
        const std::string why =
            run->result->message.empty() ? "" : " (" + run->result->message + ")";
        lines.push_back(Capitalized(fmt::format("{}: {} at step {}{}.", who, run->result->status,
                                                FormatInteger(run->result->steps), why)));
      }
    }
  }
  return lines;
}

}  // namespace planish::lab
