#include "lab/report/html.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "lab/analysis/findings.h"
#include "lab/analysis/format.h"
#include "lab/analysis/reproduction.h"
#include "lab/base/base64.h"
#include "lab/base/format_integer.h"
#include "lab/report/chart.h"
#include "lab/report/gradients.h"
#include "lab/report/overview.h"
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
  if (items.empty()) {
    return Tag("p", {},
               "Nothing to compare: all runs have the same value of the compared setting, or the "
               "task has no headline metric.");
  }
  return Tag("ul", {{"class", "findings"}}, items) +
         Tag("p", {{"class", "note"}}, MethodOf(section));
}

// Returns why claims have no verdict on the paper's data, or an empty text.
std::string CaveatOf(const Section& section, const ClaimResult& result) {
  const std::string& here = section.config->data.name;
  switch (result.evidence) {
    case Evidence::kOtherData:
      if (result.claim.data.empty()) {
        return fmt::format("These runs used {}; the checksum of the paper's data is not known.",
                           here);
      }
      return fmt::format("The paper used {}; these runs used {}.", result.claim.data, here);
    case Evidence::kSmoke:
      return "Smoke runs get no verdict: they only show that the task runs.";
    case Evidence::kFewCases:
      return "Runs on less than a tenth of the paper's training cases get no verdict.";
    case Evidence::kVerdict:
      break;
  }
  return "";
}

Markup RenderClaims(const Section& section) {
  Markup items;
  std::vector<std::string> notes;
  int64_t elsewhere = 0;
  for (const ClaimResult& result : JudgeClaims(section, ClaimsOf(section.config->task))) {
    const ClaimSpec& claim = result.claim;
    if (result.is_elsewhere) {
      ++elsewhere;
      continue;
    }
    const auto add_note = [&](const std::string& note) {
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
    };
    const std::string caveat = result.panel ? CaveatOf(section, result) : "";
    if (!caveat.empty()) add_note(caveat);
    std::string measured = MeasuredText(section, result);
    const TwoWayResult of_items = TwoWayOf(result);
    const std::string interval =
        SeedsAndItemsText(result.metric, result.contrast.value(), of_items);
    if (!interval.empty()) measured += fmt::format(" Over seeds and test items: {}.", interval);
    if (result.measure == Measure::kFinal && !of_items.left_out.empty()) {
      add_note(fmt::format("After the last step, {} has no interval over seeds and test items: {}.",
                           result.metric.label, of_items.left_out));
    }
    items += Tag("li", {}, Badge(VerdictText(result.verdict)),
                 Tag("div", {},
                     Tag("p", {}, Tag("strong", {}, claim.text), " ",
                         Tag("span", {{"class", "where"}}, claim.source)),
                     Tag("p", {}, measured)));
  }
  if (items.empty()) return {};
  if (elsewhere > 0) {
    notes.push_back(Count(elsewhere, "claim") + (elsewhere == 1
                                                     ? " is about settings that no run has."
                                                     : " are about settings that no run has."));
  }
  notes.emplace_back(
      "Agrees: the 95% interval of the difference, paired by seed, excludes 0 and has the claimed "
      "sign. Differs: it has the other sign. On other data: a hint, not a test of the paper. Open: "
      "the interval includes 0 or has no width, or there are too few seeds. The rule was fixed "
      "before the runs.");
  return Tag("ul", {{"class", "findings"}}, items) +
         Tag("p", {{"class", "note"}}, fmt::format("{}", fmt::join(notes, " ")));
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
  return RowHead(RenderSample(StyleOf(section, group.value)) + group.value);
}

// Returns the training time of a group in seconds, marked if other programs disturbed it.
Markup SecondsCell(const Group& group) {
  const Estimate seconds = TrainingSeconds(group);
  if (seconds.count == 0) return NumberCell(kMissing);
  return NumberCell(FormatSeconds(seconds.mean) +
                    (OtherLoadOf(group) == OtherLoad::kDisturbed ? "†" : ""));
}

// Returns sentences on the values and seconds of RenderHeadline.
std::string HeadlineNote(const Section& section) {
  bool disturbed = false, unknown = false;
  for (const Panel& panel : section.panels) {
    for (const Group& group : panel.groups) {
      if (group.CountOf(Status::kFinished) == 0) continue;
      disturbed |= OtherLoadOf(group) == OtherLoad::kDisturbed;
      unknown |= OtherLoadOf(group) == OtherLoad::kUnknown;
    }
  }
  std::string note = fmt::format(
      "Mean over the finished seeds ± half-width of its 95% confidence interval; two seeds are "
      "shown "
      "as both values. {}",
      HeadlineMeasure(section) == Measure::kBest
          ? "Read at the evaluation with the best validation result."
          : "Read after the last step.");
  if (disturbed) {
    note += fmt::format(
        " † Other programs disturbed the timing: a run got less than {:.0f}% of the CPU time that "
        "it could use.",
        100 * kMinCpuShare);
  }
  if (unknown) {
    note += " Some runs did not record their CPU time: other programs may have disturbed them.";
  }
  return note;
}

// Returns true if a run of the section has predictions for its headline metric.
bool HasPredictions(const Section& section) {
  return HeadlineMeasure(section) == Measure::kBest &&
         FindItemMetric(section.config->report.headline) &&
         std::ranges::any_of(section.runs,
                             [](const Run* run) { return run->predictions != nullptr; });
}

// Renders the headline metric of each group, and its difference from the baseline.
Markup RenderHeadline(const Section& section, const Panel& panel) {
  const RunConfig& config = *section.config;
  const MetricSpec* metric = section.Find(config.report.headline);
  if (!metric) return {};
  const Measure measure = HeadlineMeasure(section);
  const Group* baseline = panel.Find(config.report.baseline);
  const bool differences = baseline && panel.groups.size() > 1;
  Markup head =
      Head(Words(config.report.compare)) + NumberHead("seeds") + NumberHead(LabelWithUnit(*metric));
  if (differences) {
    const std::string unit = DifferenceUnit(*metric);
    head += NumberHead("minus " + config.report.baseline + (unit.empty() ? "" : " (" + unit + ")"));
  }
  const bool has_items = differences && HasPredictions(section);
  if (has_items) head += NumberHead("over seeds and test items");
  head += NumberHead("training (s)");
  Markup rows;
  for (const Group& group : panel.groups) {
    Markup row = NameHead(section, group) + SeedsCell(group) +
                 EstimateCell(*metric, ValuesOf(group, metric->name, measure));
    if (differences) {
      const bool is_baseline = &group == baseline;
      const Estimate difference =
          is_baseline ? Estimate() : Compare(group, *baseline, *metric, measure).difference;
      row += NumberCell(DifferenceText(*metric, difference));
      if (has_items) {
        const std::string text =
            is_baseline ? ""
                        : SeedsAndItemsText(*metric, difference,
                                            TwoWayDifference(group, *baseline, *metric));
        row += NumberCell(text.empty() ? std::string(kMissing) : text);
      }
    }
    rows += Tag("tr", {}, row + SecondsCell(group));
  }
  return ScrollingTable("Results " + panel.title, Tag("tr", {}, head), rows);
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
      return !ValuesOf(group, metric.name, Measure::kFinal).empty();
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
        row += EstimateCell(*metric, ValuesOf(group, metric->name, Measure::kFinal));
      }
      row += EstimateCell(*metric, ValuesOf(group, metric->name, Measure::kBest));
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

// Renders up to `count` metrics of the curves, against steps or seconds. Explains the marks unless
// `notes` has the explanation already.
Markup RenderCharts(const Section& section, const Panel& panel, bool against_seconds, size_t count,
                    const std::string& id, std::vector<std::string>* notes) {
  Markup charts, missing, legend;
  std::string note;
  std::vector<const MetricSpec*> metrics = CurveMetrics(section);
  metrics.resize(std::min(metrics.size(), count));
  for (const MetricSpec* metric : metrics) {
    std::vector<Series> series;
    std::vector<Curve> curves;
    for (const Group& group : panel.groups) {
      Curve curve = CurveOf(group, metric->name);
      if (curve.single.empty()) continue;
      curves.push_back(curve);
      series.push_back({group.value, StyleOf(section, group.value), std::move(curve)});
    }
    if (series.empty()) {
      missing += Tag("p", {{"class", "note"}}, "No run has evaluated " + metric->label + " yet.");
      continue;
    }
    if (legend.empty()) legend = RenderLegend(series);
    Chart chart;
    chart.id = fmt::format("{}-{}-{}", id, metric - section.config->metrics.data(),
                           against_seconds ? "seconds" : "steps");
    chart.heading =
        fmt::format("{} against {}", LabelWithUnit(*metric), against_seconds ? "seconds" : "steps");
    chart.metric = *metric;
    chart.against_seconds = against_seconds;
    chart.axis = ValueAxis(curves, metric->lower_is_better);
    chart.series = series;
    charts += RenderFigure(chart);
    const std::string of_chart = ChartNote(series, chart.axis);
    if (of_chart.size() > note.size()) note = of_chart;
  }
  if (charts.empty()) return missing;
  Markup content = legend + Tag("div", {{"class", "charts"}}, charts);
  if (std::ranges::find(*notes, note) == notes->end()) {
    notes->push_back(note);
    content += Tag("p", {{"class", "note"}}, note);
  }
  return content + missing;
}

// Renders the values of all curves.
Markup RenderValues(const Section& section, const Panel& panel) {
  Markup content;
  for (const MetricSpec* metric : CurveMetrics(section)) {
    std::vector<Series> series;
    for (const Group& group : panel.groups) {
      Curve curve = CurveOf(group, metric->name);
      if (curve.single.empty()) continue;
      series.push_back({group.value, StyleOf(section, group.value), std::move(curve)});
    }
    if (!series.empty()) content += RenderNumbers(*metric, series);
  }
  return content;
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
        Markup figure = Tag("figcaption", {}, RenderSample(StyleOf(section, group.value)), title);
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
          const SeedValues best_step = ValuesOf(alone, headline->name, Measure::kStepsToBest);
          if (has_final) {
            row += EstimateCell(*headline, ValuesOf(alone, headline->name, Measure::kFinal));
          }
          row += EstimateCell(*headline, ValuesOf(alone, headline->name, Measure::kBest)) +
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

// Returns sentences on runs without usable predictions.
std::vector<std::string> LeftOutText(const Section& section) {
  const MetricSpec* metric = section.Find(section.config->report.headline);
  if (!metric || HeadlineMeasure(section) != Measure::kBest) return {};
  LeftOutRuns left_out;
  for (const Panel& panel : section.panels) left_out += LeftOutOf(GroupsOf(panel), *metric);
  return left_out.Text();
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
      const Estimate value = EstimateMean(ValuesOf(group, metric->name, HeadlineMeasure(section)));
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

// Returns a row of the overview for the difference of a group from the baseline.
IntervalRow DifferenceRow(const Section& section, const MetricSpec& metric,
                          const std::string& label, const std::string& value,
                          const Estimate& difference) {
  IntervalRow row{.label = label,
                  .style = StyleOf(section, value),
                  .low = Shown(metric, difference.low()),
                  .middle = Shown(metric, difference.mean),
                  .high = Shown(metric, difference.high()),
                  .values = {},
                  .text = FormatDifference(metric, difference.mean)};
  if (difference.count <= 2) {
    row.low = row.high = row.middle;
    row.values = {Shown(metric, difference.min)};
    if (difference.count == 2) {
      row.values.push_back(Shown(metric, difference.max));
      row.text = fmt::format("{} and {}", FormatDifference(metric, difference.min),
                             FormatDifference(metric, difference.max));
    }
  } else {
    row.text += ", 95% interval " + FormatDifferenceInterval(metric, difference);
  }
  return row;
}

// Renders the differences from the baseline in all panels; if there are none, the first curve.
Markup RenderOverview(const Section& section, const std::string& id) {
  constexpr size_t kMaxRows = 14;
  const ReportSpec& report = section.config->report;
  const MetricSpec* metric = section.Find(report.headline);
  if (metric) {
    const std::string unit = DifferenceUnit(*metric);
    IntervalChart chart{.id = id,
                        .heading = "",
                        .x_name = fmt::format("{}{}: {} is better", metric->label,
                                              unit.empty() ? "" : " (" + unit + ")",
                                              metric->lower_is_better ? "left" : "right"),
                        .reference = 0,
                        .x_text = [](double value) { return FormatSignificant(value, 2); },
                        .rows = {}};
    size_t all = 0;
    for (const Panel& panel : section.panels) {
      const Group* baseline = panel.Find(report.baseline);
      if (!baseline) continue;
      for (const Group& group : panel.groups) {
        if (&group == baseline) continue;
        const Comparison comparison = Compare(group, *baseline, *metric, HeadlineMeasure(section));
        if (comparison.difference.count == 0 || ++all > kMaxRows) continue;
        const std::string label =
            section.panels.size() > 1 ? group.value + ", " + panel.title : group.value;
        chart.rows.push_back(
            DifferenceRow(section, *metric, label, group.value, comparison.difference));
      }
    }
    if (!chart.rows.empty()) {
      chart.heading =
          fmt::format("Difference from {}, with its 95% interval{}", section.Named(report.baseline),
                      all > kMaxRows ? fmt::format(" (the first {} of {})", kMaxRows, all) : "");
      return RenderIntervals(chart);
    }
  }
  std::vector<std::string> notes;
  return RenderCharts(section, section.panels.front(), /*against_seconds=*/false, 1, id, &notes);
}

// Returns the sentence on the best group of a panel: "With batch size 4, layer is best with 5.13%
// test error."
std::string BestOf(const Section& section, const Panel& panel, const MetricSpec& metric) {
  std::vector<std::string> best;  // several if their means are equal
  double value = 0;
  for (const Group& group : panel.groups) {
    const Estimate other = EstimateMean(ValuesOf(group, metric.name, HeadlineMeasure(section)));
    if (other.count == 0) continue;
    const bool is_equal = FormatValue(metric, other.mean) == FormatValue(metric, value);
    if (!best.empty() && is_equal) {
      best.push_back(section.Named(group.value));
    } else if (best.empty() || (metric.lower_is_better ? other.mean < value : other.mean > value)) {
      best = {section.Named(group.value)};
      value = other.mean;
    }
  }
  if (best.empty()) return "";
  return fmt::format("{} {} the best mean {}, {}{}", fmt::join(best, ", "),
                     best.size() == 1 ? "has" : "share", metric.label, FormatValue(metric, value),
                     panel.title.empty() ? "" : " (" + panel.title + ")");
}

Summary SummaryOf(const Section& section, const std::string& id) {
  const RunConfig& config = *section.config;
  const MetricSpec* metric = section.Find(config.report.headline);
  Summary summary;
  const std::string compare = Words(config.report.compare);
  summary.asked = fmt::format(
      "Asked: how does the {} change the {}? {} of {} on {}, {}.",
      compare.empty() ? "setting" : compare, metric ? metric->label : "result",
      Count(std::ssize(section.runs), "run"), config.task, section.data,
      section.values.empty() ? "" : fmt::format("compared: {}", fmt::join(section.values, ", ")));
  std::map<std::string, size_t> counts;
  for (const Panel& panel : section.panels) {
    for (const Finding& finding : FindingsOf(section, panel)) ++counts[finding.word];
  }
  std::vector<std::string> best;
  if (metric) {
    for (const Panel& panel : section.panels) {
      const std::string sentence = BestOf(section, panel, *metric);
      if (!sentence.empty()) best.push_back(sentence);
    }
  }
  constexpr size_t kMaxPanels = 2;
  const size_t more = best.size() > kMaxPanels ? best.size() - kMaxPanels : 0;
  best.resize(best.size() - more);
  summary.found = best.empty() ? "Found: no run has finished yet."
                               : fmt::format("Found: {}{}.", fmt::join(best, "; "),
                                             more > 0 ? fmt::format("; {} more below", more) : "");
  int fewest = 0, most = 0;
  bool smoke = false;
  for (const Panel& panel : section.panels) {
    smoke |= IsSmoke(panel.config().preset);
    for (const Group& group : panel.groups) {
      const auto seeds = static_cast<int>(group.runs.size());
      fewest = fewest == 0 ? seeds : std::min(fewest, seeds);
      most = std::max(most, seeds);
    }
  }
  const std::string seeds =
      fewest == most ? Count(most, "seed") : fmt::format("{} to {}", fewest, Count(most, "seed"));
  if (smoke) {
    summary.sure = "How sure: not at all, because smoke runs only show that the task runs.";
  } else if (most < 2) {
    summary.sure = "How sure: one seed has no interval, so every difference can be chance.";
  } else {
    summary.sure = fmt::format(
        "How sure: {} each{}; a difference counts only if its 95% interval, paired by seed, "
        "excludes 0.",
        seeds, OnTestCases(*section.config));
  }
  summary.chart = RenderOverview(section, id + "-overview");
  for (const char* word : {"better", "worse", "cannot tell", "no comparison", "smoke run"}) {
    const bool always = std::string_view(word) == "better" || std::string_view(word) == "worse" ||
                        std::string_view(word) == "cannot tell";
    if (counts[word] == 0 && (!always || smoke || counts.size() < 2)) continue;
    summary.tiles.push_back(
        {counts[word], word, always ? "than " + section.Named(config.report.baseline) : ""});
    if (std::string_view(word) == "cannot tell") summary.tiles.back().note.clear();
  }
  return summary;
}

}  // namespace

Part RenderSection(const Section& section, const std::string& id) {
  const ReportSpec& report = section.config->report;
  Part part{.id = id,
            .title = fmt::format("{} ({})", report.title, section.data),
            .source = fmt::format("Task: {}. Data: {}.", report.source, section.data),
            .group = "Tasks",
            .summary = SummaryOf(section, id),
            .body = {},
            .links = {},
            .details = {}};
  const std::vector<std::string> warnings = Warnings(section);
  if (!warnings.empty()) {
    part.body += Tag("div", {{"class", "warnings"}}, Tag("h4", {}, "Warnings"), List(warnings));
  }
  AddSection(part, "-findings", "Findings", RenderFindings(section));
  Markup results;
  std::vector<std::string> notes_of_charts, notes_of_details;
  for (size_t i = 0; i < section.panels.size(); ++i) {
    const Panel& panel = section.panels[i];
    const std::string panel_id = fmt::format("{}-{}", id, i);
    const Markup title =
        section.panels.size() < 2 ? Markup() : Tag("h4", {}, "With " + panel.title);
    results +=
        Tag("div", {{"class", "panel"}}, title, RenderHeadline(section, panel),
            RenderCharts(section, panel, /*against_seconds=*/false, 2, panel_id, &notes_of_charts));
    constexpr size_t kAll = 1000;
    part.details += Tag(
        "div", {{"class", "panel"}},
        Tag("h4", {}, panel.title.empty() ? "All metrics" : "All metrics with " + panel.title),
        RenderResults(section, panel), RenderTargets(section, panel), RenderCatchUp(section, panel),
        RenderCharts(section, panel, /*against_seconds=*/true, kAll, panel_id, &notes_of_details),
        RenderValues(section, panel), RenderGradients(section, panel, panel_id),
        RenderSamples(section, panel));
  }
  std::string note = HeadlineNote(section);
  if (HasPredictions(section)) note += fmt::format(" {}", kSeedsAndItemsNote);
  for (const std::string& line : LeftOutText(section)) note += " " + line;
  results += Tag("p", {{"class", "note"}}, note);
  AddSection(part, "-results", "Results and curves", results);
  AddSection(part, "-claims", "Published claims about this task", RenderClaims(section));

  Markup setup = Tag("h4", {}, "Setup") + RenderFacts(section);
  if (!report.notes.empty()) {
    setup += Tag("h4", {}, "Differences from the paper") + List(report.notes);
  }
  std::vector<std::string> notes = {
      "Seconds are training time, without evaluations and pauses.",
      "Each interval is a 95% t-interval, not corrected for multiple comparisons: of twenty "
      "comparisons without a true difference, one is expected to exclude 0."};
  const std::string sampling = SamplingNote(section);
  if (!sampling.empty()) notes.push_back(sampling);
  part.details = setup + part.details + Tag("h4", {}, "Runs and machine") + RenderRuns(section) +
                 Details("Machine and versions", RenderStamps(section)) +
                 Tag("div", {{"class", "note"}}, List(notes));
  return part;
}

}  // namespace planish::lab
