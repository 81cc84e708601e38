#include "lab/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "lab/analysis/findings.h"
#include "lab/analysis/format.h"
#include "lab/base/base64.h"
#include "lab/base/format_integer.h"
#include "lab/report/assets.h"
#include "lab/report/chart.h"
#include "lab/report/gradients.h"
#include "lab/report/pieces.h"

namespace planish::lab {
namespace {

// Returns text like "22 finished, 1 diverged, 1 not finished".
std::string StatusCounts(const Section& section) {
  std::map<Status, int> counts;
  for (const Run* run : section.runs) ++counts[StatusOf(*run)];
  std::string text = fmt::format("{} finished", counts[Status::kFinished]);
  if (counts[Status::kDiverged] > 0)
    text += fmt::format(", {} diverged", counts[Status::kDiverged]);
  if (counts[Status::kUnfinished] > 0) {
    text += fmt::format(", {} not finished", counts[Status::kUnfinished]);
  }
  return text;
}

std::string Seeds(const Section& section) {
  std::set<int64_t> seeds;
  for (const Run* run : section.runs) seeds.insert(run->config.seed);
  return fmt::format("{}", fmt::join(seeds, ", "));
}

// Returns text like "train 55,000, valid 5,000, test 10,000".
std::string Sizes(const RunConfig::Data& data) {
  static constexpr std::array<std::string_view, 3> kFirst = {"train", "valid", "test"};
  std::string text;
  const auto add = [&](const std::string& split, int64_t size) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", Words(split), FormatInteger(size));
  };
  for (const std::string_view split : kFirst) {
    const auto size = data.sizes.find(std::string(split));
    if (size != data.sizes.end()) add(size->first, size->second);
  }
  for (const auto& [split, size] : data.sizes) {
    if (std::find(kFirst.begin(), kFirst.end(), split) == kFirst.end()) add(split, size);
  }
  return text;
}

// Renders where and when the runs were made: each stamp with its value or its several values.
Markup RenderStamps(const Section& section) {
  std::map<std::string, std::map<std::string, int>> stamps;
  for (const Run* run : section.runs) {
    for (const auto& [name, value] : run->config.stamps) ++stamps[name][value];
  }
  Markup items;
  for (const auto& [name, values] : stamps) {
    std::string text;
    if (values.size() == 1) {
      text = values.begin()->first;
    } else if (name == "started") {
      text = values.begin()->first + " to " + values.rbegin()->first;
    } else {
      for (const auto& [value, count] : values) {
        text +=
            fmt::format("{}{} ({})", text.empty() ? "differs: " : "; ", value, Count(count, "run"));
      }
    }
    items += Fact(Words(name), text);
  }
  return Tag("dl", {{"class", "stamps"}}, items);
}

bool StampDiffers(const Section& section, const std::string& name) {
  std::set<std::string> values;
  for (const Run* run : section.runs) {
    const auto stamp = run->config.stamps.find(name);
    values.insert(stamp == run->config.stamps.end() ? "" : stamp->second);
  }
  return values.size() > 1;
}

Markup RenderFacts(const Section& section) {
  const RunConfig& config = *section.config;
  Markup facts = Fact("Task", config.task);
  for (const auto& [name, values] : section.varying) {
    const bool compared = name == config.report.compare;
    facts += Fact(compared ? "Compared" : "Varied", Words(name) + ": " + values);
  }
  Markup fixed;
  for (const std::string& setting : section.common) {
    if (!fixed.empty()) fixed += ", ";
    fixed += Tag("span", {{"class", "setting"}}, setting);
  }
  facts += Fact("Common settings", fixed);
  facts += Fact("Runs", fmt::format("{} ({}); seeds {}", section.runs.size(), StatusCounts(section),
                                    Seeds(section)));
  facts += Fact(
      "Data", Tag("span", {},
                  config.data.name + " (" + config.data.source + "): " + config.data.description));
  facts += Fact("Cases", Sizes(config.data));
  facts += Fact("SHA-256 of the data", Tag("code", {}, config.data.sha256));
  return Tag("dl", {{"class", "facts"}}, facts);
}

Markup RenderFindings(const Section& section) {
  Markup items;
  for (const Panel& panel : section.panels) {
    for (const Finding& finding : FindingsOf(section, panel)) {
      items += Tag("li", {}, Badge(finding.word), Tag("span", {}, finding.sentence));
    }
  }
  Markup content = Tag("h3", {}, "Findings");
  if (items.empty()) {
    content += Tag("p", {},
                   "Nothing to compare: all runs have the same value of the compared setting, or "
                   "the task has no headline metric.");
  } else {
    content += Tag("ul", {{"class", "findings"}}, items);
    content += Tag("p", {{"class", "note"}}, MethodOf(section));
  }
  return content;
}

Markup RenderClaims(const Section& section) {
  const std::vector<ClaimResult> results = JudgeClaims(section, ClaimsOf(section.config->task));
  if (results.empty()) return {};
  Markup items;
  for (const ClaimResult& result : results) {
    const ClaimSpec& claim = result.claim;
    std::string measured = MeasuredText(section, result);
    if (result.verdict == Verdict::kOtherData) {
      measured += fmt::format(" The claim is about {}; these runs used {}: {}.", claim.data,
                              EvidenceText(result.evidence), section.config->data.name);
    } else if (result.verdict == Verdict::kNoVerdict) {
      measured += fmt::format(" ({})", EvidenceText(result.evidence));
    }
    const std::string verdict(VerdictText(result.verdict));
    items += Tag("li", {}, Badge(verdict),
                 Tag("div", {}, Tag("p", {}, claim.text),
                     Tag("p", {{"class", "aside"}}, claim.source), Tag("p", {}, measured)));
  }
  return Tag("h3", {}, "Published claims") + Tag("ul", {{"class", "findings"}}, items) +
         Tag("p", {{"class", "note"}},
             "The rule was fixed before the runs were made. Agrees: the 95% interval of the paired "
             "difference excludes 0, and the difference has the sign of the claim. Differs: it has "
             "the opposite sign. Cannot tell: the interval includes 0 or has zero width, or there "
             "are too few seeds for an interval. Other data: the runs did not use the data set of "
             "the claim, or its checksum is not known; this is no evidence against the claim. No "
             "verdict: smoke runs, and runs on less than a tenth of the paper's training cases.");
}

Markup EstimateCell(const MetricSpec& metric, const SeedValues& values) {
  if (values.empty()) return NumberCell(kMissing);
  return NumberCell(FormatEstimate(metric, EstimateMean(values)));
}

std::vector<const MetricSpec*> CurveMetrics(const Section& section) {
  std::vector<const MetricSpec*> metrics;
  for (const std::string& name : section.config->report.curves) {
    if (const MetricSpec* metric = section.Find(name)) metrics.push_back(metric);
  }
  return metrics;
}

// Returns the percentage of a run's training time spent on its input pipeline.
std::optional<double> InputShare(const Run& run) {
  if (!(run.result->seconds > 0) || run.result->input_seconds == 0) return std::nullopt;
  return 100 * run.result->input_seconds / run.result->seconds;
}

// Returns a cell with the mean over finished runs of a value that every run has.
Markup RunMeanCell(const Group& group, const std::function<std::optional<double>(const Run&)>& read,
                   int digits) {
  std::vector<double> values;
  for (const Run* run : group.runs) {
    if (StatusOf(*run) != Status::kFinished) continue;
    if (const auto value = read(*run)) values.push_back(*value);
  }
  if (values.empty()) return NumberCell(kMissing);
  const double mean = EstimateMean(values).mean;
  return NumberCell(mean >= 1000 && mean < 1e15 ? FormatInteger(std::llround(mean))
                                                : FormatSignificant(mean, digits));
}

Markup SeedsCell(const Group& group) {
  const int finished = group.CountOf(Status::kFinished);
  const auto all = static_cast<int>(group.runs.size());
  return NumberCell(finished == all ? std::to_string(all) : fmt::format("{} of {}", finished, all));
}

Markup NameHead(const Section& section, const Group& group) {
  return RowHead(RenderSample(section.IndexOf(group.value)) + group.value);
}

Markup RenderResults(const Section& section, const Panel& panel) {
  const RunConfig& config = *section.config;
  const MetricSpec* headline = section.Find(config.report.headline);
  std::vector<const MetricSpec*> metrics = CurveMetrics(section);
  if (headline && std::find(metrics.begin(), metrics.end(), headline) == metrics.end()) {
    metrics.push_back(headline);
  }
  const Measure measure = HeadlineMeasure(section);
  const Group* baseline = panel.Find(config.report.baseline);
  const bool differences = baseline && panel.groups.size() > 1;
  // A test metric exists only at the evaluation that validation chose.
  const auto has_final = [&](const MetricSpec& metric) {
    return std::ranges::any_of(panel.groups, [&](const Group& group) {
      return !Values(group, metric.name, Measure::kFinal).empty();
    });
  };

  const auto tall = [](const Markup& text) {
    return Tag("th", {{"rowspan", "2"}, {"scope", "col"}, {"class", "number"}}, text);
  };
  Markup top =
      Tag("th", {{"rowspan", "2"}, {"scope", "col"}}, Words(config.report.compare)) + tall("seeds");
  Markup second;
  for (const MetricSpec* metric : metrics) {
    const bool difference = differences && metric == headline;
    top += Tag("th",
               {{"colspan", std::to_string(1 + has_final(*metric) + difference)},
                {"scope", "colgroup"},
                {"class", "span"}},
               LabelWithUnit(*metric));
    if (has_final(*metric)) second += NumberHead("final");
    second += NumberHead("best");
    if (difference) {
      second += NumberHead((measure == Measure::kBest ? "best minus " : "final minus ") +
                           config.report.baseline);
    }
  }
  top += tall("training (s)") + tall("input (%)") + tall("cases/s") + tall("parameters");

  Markup rows;
  for (const Group& group : panel.groups) {
    Markup row = NameHead(section, group) + SeedsCell(group);
    for (const MetricSpec* metric : metrics) {
      if (has_final(*metric)) {
        row += EstimateCell(*metric, Values(group, metric->name, Measure::kFinal));
      }
      row += EstimateCell(*metric, Values(group, metric->name, Measure::kBest));
      if (!differences || metric != headline) continue;
      row += NumberCell(
          &group == baseline
              ? std::string(kMissing)
              : DifferenceText(*metric, Compare(group, *baseline, *metric, measure).difference));
    }
    row += RunMeanCell(group, [](const Run& run) { return std::optional(run.result->seconds); }, 3);
    row += RunMeanCell(group, InputShare, 2);
    row += RunMeanCell(group, CasesPerSecond, 3);
    row += RunMeanCell(
        group, [](const Run& run) { return std::optional<double>(run.result->parameters); }, 9);
    rows += Tag("tr", {}, row);
  }
  return ScrollingTable("Results " + panel.title, Tag("tr", {}, top) + Tag("tr", {}, second),
                        rows) +
         Tag("p", {{"class", "note"}},
             "Mean over finished seeds ± half-width of its 95% confidence interval. Best: at the "
             "evaluation with the best validation result. Input: share of the training time that "
             "is spent gathering batches.");
}

Markup TargetCell(const Reached& reached) {
  if (reached.of == 0) return NumberCell(kMissing);
  if (reached.count == 0) {
    return NumberCell(Tag("span", {{"class", "never"}},
                          fmt::format("not reached in {}", Count(reached.of, "seed"))));
  }
  Markup content =
      Markup(FormatInteger(std::llround(reached.steps.mean)) + " steps") +
      Tag("span", {{"class", "aside"}}, FormatSignificant(reached.seconds.mean, 3) + " s");
  if (reached.count < reached.of) {
    content +=
        Tag("span", {{"class", "aside"}}, fmt::format("{} of {} seeds", reached.count, reached.of));
  }
  return NumberCell(content);
}

Markup RenderTargets(const Section& section, const Panel& panel) {
  Markup tables;
  for (const TargetSpec& target : section.config->report.targets) {
    const MetricSpec* metric = section.Find(target.metric);
    if (!metric || target.values.empty()) continue;
    Markup head = Head(Words(section.config->report.compare));
    for (const double value : target.values) {
      head += NumberHead(FormatTarget(*metric, value));
    }
    Markup rows;
    for (const Group& group : panel.groups) {
      Markup row = NameHead(section, group);
      for (const double value : target.values) row += TargetCell(Reach(group, *metric, value));
      rows += Tag("tr", {}, row);
    }
    const std::string title =
        fmt::format("Steps and training seconds to reach a {} of", metric->label);
    tables +=
        Tag("h4", {}, title) + ScrollingTable(title + " " + panel.title, Tag("tr", {}, head), rows);
  }
  if (tables.empty()) return {};
  return tables + Tag("p", {{"class", "note"}},
                      "Steps and seconds to the first evaluation that reaches the value: mean over "
                      "the seeds that reach it, with their number if not all do.");
}

Markup ShareCell(const CatchUp& catch_up, const Estimate& share) {
  if (catch_up.of == 0) return NumberCell(kMissing);
  if (catch_up.count == 0) {
    return NumberCell(Tag("span", {{"class", "never"}},
                          fmt::format("not reached in {}", Count(catch_up.of, "seed"))));
  }
  Markup content(fmt::format("{:.2f}", share.mean));
  if (share.half_width) {
    content += Tag("span", {{"class", "aside"}},
                   fmt::format("{:.2f} to {:.2f}", share.low(), share.high()));
  }
  if (catch_up.count < catch_up.of) {
    content += Tag("span", {{"class", "aside"}},
                   fmt::format("{} of {}", catch_up.count, Count(catch_up.of, "seed")));
  }
  return NumberCell(content);
}

// Renders how soon each group matches the baseline's best.
Markup RenderCatchUp(const Section& section, const Panel& panel) {
  const MetricSpec* metric = ChosenBy(section);
  const Group* baseline = panel.Find(section.config->report.baseline);
  if (!metric || !baseline) return {};
  Markup rows;
  bool any = false;
  for (const Group& group : panel.groups) {
    if (&group == baseline) continue;
    const CatchUp catch_up = CatchUpWith(group, *baseline, *metric);
    any |= catch_up.of > 0;
    rows += Tag("tr", {}, NameHead(section, group), ShareCell(catch_up, catch_up.steps),
                ShareCell(catch_up, catch_up.seconds));
  }
  if (!any) return {};
  const std::string title = fmt::format("Steps and training seconds to the best {} of {}",
                                        metric->label, section.Named(baseline->value));
  const Markup head = Tag("tr", {}, Head(Words(section.config->report.compare)),
                          NumberHead("ratio of steps"), NumberHead("ratio of seconds"));
  return Tag("h4", {}, title) + ScrollingTable(title + " " + panel.title, head, rows) +
         Tag("p", {{"class", "note"}},
             "Steps (or seconds) to the first evaluation that is at least as good as the "
             "baseline's best, divided by those of the baseline to its best. Each run is compared "
             "with the baseline's run of the same seed: mean, 95% interval, and the number of "
             "seeds if not all get there.");
}

// Renders the values of a metric's charts: at most about 100 evaluations.
Markup RenderNumbers(const MetricSpec& metric, const std::vector<Series>& series) {
  constexpr size_t kRows = 100;
  std::map<int64_t, std::map<size_t, const Curve::Point*>> steps;
  for (size_t i = 0; i < series.size(); ++i) {
    for (const Curve::Point& point : series[i].curve.mean) steps[point.step][i] = &point;
  }
  Markup head = NumberHead("step");
  for (const Series& s : series) {
    head += NumberHead(s.name) + NumberHead("seconds");
  }
  const size_t stride = (steps.size() + kRows - 1) / kRows;
  Markup rows;
  size_t index = 0;
  for (const auto& [step, points] : steps) {
    if (index++ % stride != 0 && index != steps.size()) continue;
    Markup row = Tag("th", {{"scope", "row"}, {"class", "number"}}, FormatInteger(step));
    for (size_t i = 0; i < series.size(); ++i) {
      const auto point = points.find(i);
      if (point == points.end()) {
        row += NumberCell(kMissing) + NumberCell(kMissing);
      } else {
        row += NumberCell(FormatEstimate(metric, point->second->value)) +
               NumberCell(FormatSignificant(point->second->seconds, 3));
      }
    }
    rows += Tag("tr", {}, row);
  }
  Markup table = ScrollingTable("Values of " + metric.label, Tag("tr", {}, head), rows);
  if (stride > 1) {
    table += Tag("p", {{"class", "note"}},
                 fmt::format("One of every {} evaluations, and the last; the runs have {}.", stride,
                             steps.size()));
  }
  return Details("Values: " + LabelWithUnit(metric), table);
}

Markup RenderCharts(const Section& section, const Panel& panel, const std::string& id) {
  Markup charts;
  Markup legend;
  for (const MetricSpec* metric : CurveMetrics(section)) {
    std::vector<Series> series;
    std::vector<Curve> curves;
    for (const Group& group : panel.groups) {
      Curve curve = CurveOf(group, metric->name);
      if (curve.single.empty()) continue;
      curves.push_back(curve);
      series.push_back({group.value, section.IndexOf(group.value), std::move(curve)});
    }
    if (series.empty()) {
      charts += Tag("p", {{"class", "note"}}, "No run has evaluated " + metric->label + " yet.");
      continue;
    }
    if (legend.empty()) legend = RenderLegend(series);
    const Axis axis = ValueAxis(curves, metric->lower_is_better);
    Markup pair;
    for (const bool against_seconds : {false, true}) {
      Chart chart;
      chart.id = fmt::format("{}-{}-{}", id, metric - section.config->metrics.data(),
                             against_seconds ? "seconds" : "steps");
      chart.heading = fmt::format("{} against {}", LabelWithUnit(*metric),
                                  against_seconds ? "seconds" : "steps");
      chart.metric = *metric;
      chart.against_seconds = against_seconds;
      chart.axis = axis;
      chart.series = series;
      pair += RenderFigure(chart);
    }
    charts += Tag("div", {{"class", "charts"}}, pair) +
              Tag("p", {{"class", "note"}}, ChartNote(series, axis)) +
              RenderNumbers(*metric, series);
  }
  return legend + charts;
}

// Renders the samples of a panel's trained models.
Markup RenderSamples(const Section& section, const Panel& panel) {
  Markup samples;
  for (const Group& group : panel.groups) {
    for (const Run* run : group.runs) {
      if (!run->result) continue;
      for (const RunResult::Sample& sample : run->result->samples) {
        const std::string title =
            fmt::format("{}, seed {}: {}", group.value, run->config.seed, sample.title);
        Markup figure = Tag("figcaption", {}, RenderSample(section.IndexOf(group.value)), title);
        if (!sample.svg.empty()) {
          // A browser runs no script in an image and loads nothing for it, whoever wrote the
          // result.
          figure += Element("img", {{"class", "picture"},
                                    {"alt", title},
                                    {"src", "data:image/svg+xml;base64," + Base64(sample.svg)}});
        }
        if (!sample.text.empty()) figure += Tag("pre", {}, sample.text);
        const Attributes wide = {{"class", "drawing"}};
        samples += Element("figure", sample.svg.empty() ? Attributes() : wide, figure);
      }
    }
  }
  if (samples.empty()) return {};
  return Tag("h4", {}, "Samples") + Tag("div", {{"class", "samples"}}, samples);
}

Markup RenderRuns(const Section& section) {
  const RunConfig& config = *section.config;
  const MetricSpec* headline = section.Find(config.report.headline);
  Markup head = Head(Words(config.report.compare));
  std::vector<std::string> names;
  for (const auto& [name, values] : section.varying) {
    if (name == config.report.compare) continue;
    names.push_back(name);
    head += Head(Words(name));
  }
  head += NumberHead("seed") + Head("status") + NumberHead("steps") + NumberHead("training (s)") +
          NumberHead("evaluation (s)");
  const bool has_final = headline && std::ranges::any_of(section.runs, [&](const Run* run) {
                           return run->result && run->result->final_values.contains(headline->name);
                         });
  if (headline) {
    if (has_final) head += NumberHead("final " + LabelWithUnit(*headline));
    head += NumberHead("best " + LabelWithUnit(*headline)) + NumberHead("best at step");
  }
  head += Head("folder");
  Markup rows;
  for (const Panel& panel : section.panels) {
    for (const Group& group : panel.groups) {
      for (const Run* run : group.runs) {
        Markup row = Cell(group.value);
        for (const std::string& name : names) {
          row += Cell(SettingText(panel.settings.value(name, nlohmann::json())));
        }
        row += NumberCell(std::to_string(run->config.seed));
        const Group alone{group.value, {run}};
        if (run->result) {
          row += Cell(run->result->status) + NumberCell(FormatInteger(run->result->steps)) +
                 NumberCell(FormatSignificant(run->result->seconds, 3)) +
                 NumberCell(FormatSignificant(run->result->evaluation_seconds, 3));
        } else {
          const Evaluation last = run->evaluations.empty() ? Evaluation{} : run->evaluations.back();
          row += Cell("not finished") + NumberCell(FormatInteger(last.step)) +
                 NumberCell(FormatSignificant(last.seconds, 3)) + NumberCell(kMissing);
        }
        if (headline) {
          const SeedValues best_step = Values(alone, headline->name, Measure::kStepsToBest);
          if (has_final) {
            row += EstimateCell(*headline, Values(alone, headline->name, Measure::kFinal));
          }
          row += EstimateCell(*headline, Values(alone, headline->name, Measure::kBest)) +
                 NumberCell(best_step.empty()
                                ? std::string(kMissing)
                                : FormatInteger(std::llround(best_step.begin()->second)));
        }
        rows += Tag("tr", {}, row, Cell(run->folder.filename().string()));
      }
    }
  }
  return Details(fmt::format("All runs ({})", section.runs.size()),
                 ScrollingTable("All runs", Tag("tr", {}, head), rows));
}

// Returns warnings that a reader needs before trusting the values.
std::vector<std::string> Warnings(const Section& section) {
  std::vector<std::string> lines = Incomplete(section);
  for (const Run* run : section.left_out) {
    lines.push_back(
        fmt::format("{} is left out: a run with the same settings and seed is newer or more "
                    "complete.",
                    run->folder.filename().string()));
  }
  if (section.specs_differ) {
    lines.push_back(
        "The runs declare different metrics or reports; those of the newest run are used.");
  }
  for (const char* stamp : {"cpu", "threads"}) {
    if (StampDiffers(section, stamp)) {
      lines.push_back(
          fmt::format("The runs used different {}: their seconds cannot be compared.",
                      std::string(stamp) == "cpu" ? "processors" : "numbers of threads"));
    }
  }
  for (const char* stamp : {"version", "commit"}) {
    if (StampDiffers(section, stamp)) {
      lines.push_back(fmt::format("The runs were made by different {}s of the program.", stamp));
    }
  }
  return lines;
}

// Returns a note on the sampling error of one run's error rate from the size of the test set.
std::string SamplingNote(const Section& section) {
  const MetricSpec* metric = section.Find(section.config->report.headline);
  if (!metric || metric->unit != "%") return "";
  const std::string split = metric->name.substr(0, metric->name.find('_'));
  const auto size = section.config->data.sizes.find(split);
  if (size == section.config->data.sizes.end() || size->second < 1) return "";
  for (const Panel& panel : section.panels) {
    for (const Group& group : panel.groups) {
      const Estimate value = EstimateMean(Values(group, metric->name, HeadlineMeasure(section)));
      const double p = value.mean;
      if (value.count == 0 || !(p > 0 && p < 1)) continue;
      return fmt::format(
          "The intervals cover the variation over seeds (initial weights, order of the cases), but "
          "not the sampling error of the {} set: with {} cases, one run at {} has a standard error "
          "of {:.2f} points.",
          Words(split), FormatInteger(size->second), FormatValue(*metric, p),
          100 * std::sqrt(p * (1 - p) / static_cast<double>(size->second)));
    }
  }
  return "";
}

}  // namespace

Markup RenderSection(const Section& section, const std::string& id) {
  const ReportSpec& report = section.config->report;
  Markup content = Tag("h2", {}, report.title);
  content += Tag("p", {{"class", "source"}},
                 fmt::format("Source: {}. Data: {}.", report.source, section.config->data.name));
  content += RenderFindings(section);
  content += RenderClaims(section);
  const std::vector<std::string> warnings = Warnings(section);
  if (!warnings.empty()) {
    content += Tag("div", {{"class", "warnings"}}, Tag("h3", {}, "Warnings"), List(warnings));
  }
  content += Tag("h3", {}, "Setup") + RenderFacts(section);
  if (!report.notes.empty()) {
    content += Tag("h3", {}, "Differences from the paper") + List(report.notes);
  }
  for (size_t i = 0; i < section.panels.size(); ++i) {
    const Panel& panel = section.panels[i];
    std::string title = panel.title.empty() ? "Results" : "Results with " + panel.title;
    content += Tag("div", {{"class", "panel"}}, Tag("h3", {}, title), RenderResults(section, panel),
                   RenderTargets(section, panel), RenderCatchUp(section, panel),
                   RenderCharts(section, panel, fmt::format("{}-{}", id, i)),
                   RenderGradients(section, panel, fmt::format("{}-{}", id, i)),
                   RenderSamples(section, panel));
  }
  content += Tag("h3", {}, "Runs and machine") + RenderRuns(section) +
             Details("Machine and versions", RenderStamps(section));
  std::vector<std::string> notes = {
      "Seconds are training time, without evaluations and pauses.",
      "Each interval is a 95% t-interval, not corrected for multiple comparisons: of twenty "
      "comparisons without a true difference, one is expected to exclude 0."};
  const std::string sampling = SamplingNote(section);
  if (!sampling.empty()) notes.push_back(sampling);
  content += Tag("div", {{"class", "note"}}, List(notes));
  return Tag("section", {{"id", id}}, content);
}

namespace {

// Returns the hash of the page's own script, as a Content-Security-Policy names it.
std::string ScriptHash() {
  const std::string hex = assets::kScriptSha256;
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return Base64(bytes);
}

}  // namespace

std::string RenderDocument(const std::string& title, const Markup& body) {
  const Markup head =
      Element("meta", {{"charset", "utf-8"}}) +
      Element("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}}) +
      Element("meta", {{"http-equiv", "Content-Security-Policy"},
                       {"content",
                        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src "
                        "'sha256-" +
                            ScriptHash() + "'"}}) +
      Element("meta", {{"name", "color-scheme"}, {"content", "light dark"}}) +
      Tag("title", {}, title) + Tag("style", {}, Markup::Raw(assets::kStyle));
  return "<!DOCTYPE html>\n" +
         Tag("html", {{"lang", "en"}}, Tag("head", {}, head),
             Tag("body", {}, body, Tag("script", {}, Markup::Raw(assets::kScript))))
             .html() +
         "\n";
}

}  // namespace planish::lab
