#include "lab/analysis/summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "lab/analysis/arena.h"
#include "lab/analysis/format.h"

namespace planish::lab {
namespace {

using Json = nlohmann::ordered_json;

// Orders numbers by value and before everything else; other values by their text.
bool ValueLess(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.get<double>() < b.get<double>();
  if (a.is_number() != b.is_number()) return a.is_number();
  return SettingText(a) < SettingText(b);
}

std::string StartedAt(const Run& run) {
  const auto started = run.config.stamps.find("started");
  return started == run.config.stamps.end() ? "" : started->second;
}

// Returns true if `a` is more complete than `b`, or as complete and newer.
bool Preferred(const Run& a, const Run& b) {
  return std::make_tuple(StatusOf(b), StartedAt(a), a.folder) >
         std::make_tuple(StatusOf(a), StartedAt(b), b.folder);
}

bool SameSpecs(const RunConfig& a, const RunConfig& b) {
  Json ja = a;
  Json jb = b;
  return ja["metrics"] == jb["metrics"] && ja["report"] == jb["report"];
}

std::optional<double> Finite(const std::map<std::string, double>& values, const std::string& name) {
  const auto value = values.find(name);
  if (value == values.end() || !std::isfinite(value->second)) return std::nullopt;
  return value->second;
}

// Returns a run's evaluations of one metric by step. If a step occurs twice (after a resumption),
// the later evaluation counts.
std::map<int64_t, Curve::Point> PointsOf(const Run& run, const std::string& metric) {
  std::map<int64_t, Curve::Point> points;
  for (const Evaluation& evaluation : run.evaluations) {
    const std::optional<double> value = Finite(evaluation.values, metric);
    if (!value || !std::isfinite(evaluation.seconds)) continue;
    points[evaluation.step] = {evaluation.step, evaluation.seconds,
                               EstimateMean(std::vector{*value})};
  }
  return points;
}

std::optional<double> Read(const Run& run, const std::string& metric, Measure measure) {
  if (StatusOf(run) != Status::kFinished) return std::nullopt;
  if (measure == Measure::kFinal) return Finite(run.result->final_values, metric);
  if (!run.result->best) return std::nullopt;
  if (measure == Measure::kStepsTo || measure == Measure::kCatchUp) return std::nullopt;
  if (measure == Measure::kStepsToBest) return static_cast<double>(run.result->best->step);
  if (measure == Measure::kSecondsToBest) {
    const auto points = PointsOf(run, run.result->best->by);
    const auto best = points.find(run.result->best->step);
    return best == points.end() ? std::nullopt : std::optional(best->second.seconds);
  }
  return Finite(run.result->best->values, metric);
}

// Separates settings that vary from those that all runs share.
void SplitSettings(Section& section) {
  std::vector<std::string> names;
  for (const Run* run : section.runs) {
    const Json settings = AllSettings(run->config);
    for (const auto& [name, value] : settings.items()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  for (const std::string& name : names) {
    std::vector<Json> values;
    for (const Run* run : section.runs) {
      const Json value = AllSettings(run->config).value(name, Json());
      if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    }
    if (values.size() == 1) {
      // An empty text is the default of every setting that can have it.
      if (values[0] != "") section.common.push_back(SettingPhrase(name, values[0]));
      continue;
    }
    std::sort(values.begin(), values.end(), ValueLess);
    std::string joined;
    if (name == section.config->report.compare) {
      for (const std::string& value : section.values)
        joined += (joined.empty() ? "" : ", ") + value;
    } else {
      for (const Json& value : values) joined += (joined.empty() ? "" : ", ") + SettingText(value);
    }
    section.varying.emplace_back(name, joined);
  }
}

// Returns the settings that tell the panels apart: the report's, then each of the varying ones that
// distinguishes panels which the ones before do not.
std::vector<std::string> TitleSettings(const Section& section) {
  const ReportSpec& report = section.config->report;
  std::vector<std::string> names = {report.panel};
  const auto distinct = [&] {
    std::set<std::vector<nlohmann::json>> values;
    for (const Panel& panel : section.panels) {
      std::vector<nlohmann::json> of_panel;
      for (const std::string& name : names) {
        of_panel.push_back(panel.settings.value(name, nlohmann::json()));
      }
      values.insert(std::move(of_panel));
    }
    return values.size();
  };
  for (const auto& [name, values] : section.varying) {
    if (name == report.compare || name == report.panel) continue;
    const size_t before = distinct();
    if (before == section.panels.size()) break;
    names.push_back(name);
    if (distinct() == before) names.pop_back();
  }
  return names;
}

std::string PanelTitle(const std::vector<std::string>& names, const nlohmann::json& settings) {
  std::string title;
  for (const std::string& name : names) {
    if (!settings.contains(name)) continue;
    title += (title.empty() ? "" : ", ") + SettingPhrase(name, settings[name]);
  }
  return title;
}

// Returns the value of the compared setting, or "all runs" if there is none.
Json ComparedValue(const Run& run, const std::string& compare) {
  return AllSettings(run.config).value(compare, Json("all runs"));
}

// Returns the group of `value` in the panel of `settings`; creates panel and group if they are new.
Group& GroupFor(Section& section, const nlohmann::json& settings, const std::string& value) {
  auto panel = std::find_if(section.panels.begin(), section.panels.end(),
                            [&](const Panel& p) { return p.settings == settings; });
  if (panel == section.panels.end()) {
    section.panels.push_back({"", settings, {}});
    panel = section.panels.end() - 1;
  }
  auto group = std::find_if(panel->groups.begin(), panel->groups.end(),
                            [&](const Group& g) { return g.value == value; });
  if (group == panel->groups.end()) {
    panel->groups.push_back({value, {}});
    group = panel->groups.end() - 1;
  }
  return *group;
}

// Returns the values of the compared setting over `runs`, the baseline first.
std::vector<std::string> ComparedValues(const std::vector<const Run*>& runs,
                                        const ReportSpec& report) {
  std::vector<Json> values;
  for (const Run* run : runs) values.push_back(ComparedValue(*run, report.compare));
  std::sort(values.begin(), values.end(), [&](const Json& a, const Json& b) {
    const bool a_first = SettingText(a) == report.baseline;
    const bool b_first = SettingText(b) == report.baseline;
    return a_first != b_first ? a_first : ValueLess(a, b);
  });
  std::vector<std::string> texts;
  for (const Json& value : values) {
    if (texts.empty() || texts.back() != SettingText(value)) texts.push_back(SettingText(value));
  }
  return texts;
}

void SortPanels(Section& section) {
  std::vector<std::string> names = {section.config->report.panel};
  for (const auto& [name, values] : section.varying) names.push_back(name);
  const auto less = [&](const Panel& a, const Panel& b) {
    for (const std::string& name : names) {
      const Json left = a.settings.value(name, nlohmann::json());
      const Json right = b.settings.value(name, nlohmann::json());
      if (ValueLess(left, right)) return true;
      if (ValueLess(right, left)) return false;
    }
    return false;
  };
  std::stable_sort(section.panels.begin(), section.panels.end(), less);
}

Section MakeSection(std::vector<const Run*> runs) {
  Section section;
  const auto newest = std::max_element(runs.begin(), runs.end(), [](const Run* a, const Run* b) {
    return std::make_tuple(StartedAt(*a), a->folder) < std::make_tuple(StartedAt(*b), b->folder);
  });
  section.config = &(*newest)->config;
  const ReportSpec& report = section.config->report;
  section.values = ComparedValues(runs, report);
  std::stable_sort(runs.begin(), runs.end(),
                   [](const Run* a, const Run* b) { return Preferred(*a, *b); });
  for (const Run* run : runs) {
    section.specs_differ |= !SameSpecs(run->config, *section.config);
    nlohmann::json settings = AllSettings(run->config);
    settings.erase(report.compare);
    if (run->is_rate_tuned) settings[kRateSetting] = "tuned";
    std::vector<const Run*>& seeds =
        GroupFor(section, settings, SettingText(ComparedValue(*run, report.compare))).runs;
    const bool repeated = std::any_of(seeds.begin(), seeds.end(), [&](const Run* other) {
      return other->config.seed == run->config.seed;
    });
    (repeated ? section.left_out : seeds).push_back(run);
    if (!repeated) section.runs.push_back(run);
  }
  SplitSettings(section);
  SortPanels(section);
  section.runs.clear();
  const std::vector<std::string> names = TitleSettings(section);
  for (Panel& panel : section.panels) {
    panel.title = PanelTitle(names, panel.settings);
    std::sort(panel.groups.begin(), panel.groups.end(), [&](const Group& a, const Group& b) {
      return section.IndexOf(a.value) < section.IndexOf(b.value);
    });
    for (Group& group : panel.groups) {
      std::sort(group.runs.begin(), group.runs.end(),
                [](const Run* a, const Run* b) { return a->config.seed < b->config.seed; });
      section.runs.insert(section.runs.end(), group.runs.begin(), group.runs.end());
    }
  }
  return section;
}

// Returns the first evaluation at or beyond `target`, or null.
const Curve::Point* FirstBeyond(const std::map<int64_t, Curve::Point>& points,
                                const MetricSpec& metric, double target) {
  for (const auto& [step, point] : points) {
    const double value = point.value.mean;
    if (metric.lower_is_better ? value <= target : value >= target) return &point;
  }
  return nullptr;
}

double Spent(const Curve::Point& point, Effort effort) {
  return effort == Effort::kSteps ? static_cast<double>(point.step) : point.seconds;
}

using SeedBounds = std::map<int64_t, Bounded>;

// Returns the steps or seconds at which a run reached the value of `point`: since the evaluation
// before it, at the latest at `point`.
Bounded Since(const std::map<int64_t, Curve::Point>& points, const Curve::Point& point,
              Effort effort) {
  const auto at = points.find(point.step);
  const double high = Spent(point, effort);
  return {at == points.begin() ? 0 : Spent(std::prev(at)->second, effort), high, high};
}

// Returns the ratio of two times with its bounds. If b can be 0, only a widens the upper bound.
Bounded Ratio(const Bounded& a, const Bounded& b) {
  return {a.low / b.high, a.value / b.value, a.high / (b.low > 0 ? b.low : b.value)};
}

// Steps or seconds to a target by seed: of seeds that reached it, and the total of seeds that did
// not.
struct EffortTo {
  SeedBounds reached;
  SeedValues never;
};

// `targets` returns a target for each seed, or one for all.
EffortTo EffortOf(const Group& group, const MetricSpec& metric,
                  const std::function<std::optional<double>(int64_t seed)>& targets,
                  Effort effort) {
  EffortTo spent;
  for (const Run* run : group.runs) {
    const int64_t seed = run->config.seed;
    const std::optional<double> target = targets(seed);
    const auto points = PointsOf(*run, metric.name);
    if (!target || StatusOf(*run) != Status::kFinished || points.empty()) continue;
    if (const Curve::Point* first = FirstBeyond(points, metric, *target)) {
      spent.reached[seed] = Since(points, *first, effort);
    } else {
      spent.never[seed] = Spent(points.rbegin()->second, effort);
    }
  }
  return spent;
}

EffortTo StepsOf(const Group& group, const MetricSpec& metric, double target) {
  return EffortOf(group, metric, [&](int64_t) { return std::optional(target); }, Effort::kSteps);
}

// Best evaluation of a finished run by validation, and the steps and seconds until it.
struct BestPoint {
  Curve::Point point;
  Bounded steps, seconds;

  const Bounded& At(Effort effort) const { return effort == Effort::kSteps ? steps : seconds; }
};

// Returns seed -> best evaluation.
std::map<int64_t, BestPoint> BestPoints(const Group& group, const MetricSpec& metric) {
  std::map<int64_t, BestPoint> best;
  for (const Run* run : group.runs) {
    if (StatusOf(*run) != Status::kFinished || !run->result->best) continue;
    const auto points = PointsOf(*run, metric.name);
    const auto found = points.find(run->result->best->step);
    if (found == points.end()) continue;
    const Curve::Point& point = found->second;
    best[run->config.seed] = {point, Since(points, point, Effort::kSteps),
                              Since(points, point, Effort::kSeconds)};
  }
  return best;
}

// Returns seed -> measure with its bounds.
SeedBounds BoundedValues(const Group& group, const std::string& metric, Measure measure) {
  SeedBounds values;
  for (const Run* run : group.runs) {
    const std::optional<double> value = Read(*run, metric, measure);
    if (!value) continue;
    Bounded& bounded = values[run->config.seed] = Exactly(*value);
    if (!IsEffort(measure)) continue;
    const Effort effort = measure == Measure::kStepsToBest ? Effort::kSteps : Effort::kSeconds;
    const auto points = PointsOf(*run, run->result->best->by);
    const auto best = points.find(run->result->best->step);
    if (best == points.end()) continue;
    bounded.low = Since(points, best->second, effort).low;
    if (const auto after = std::next(best); after != points.end()) {
      bounded.high = Spent(after->second, effort);
    }
  }
  return values;
}

// Returns the sum of weight * value over the seeds that all `values` have.
Estimate EstimateSum(const std::vector<SeedBounds>& values, const std::vector<double>& weights) {
  std::vector<Bounded> sums;
  double largest = 0;
  for (const auto& [seed, first] : values[0]) {
    const bool is_complete =
        std::ranges::all_of(values, [&](const SeedBounds& of) { return of.contains(seed); });
    if (!is_complete) continue;
    Bounded sum;
    for (size_t i = 0; i < values.size(); ++i) {
      const Bounded term = weights[i] * values[i].at(seed);
      sum = sum + term;
      largest = std::max(largest, std::abs(term.value));
    }
    sums.push_back(sum);
  }
  return EstimateDifference(std::move(sums), largest);
}

Estimate MeanAsRead(const SeedBounds& bounds) {
  std::vector<double> values;
  for (const auto& [seed, bounded] : bounds) values.push_back(bounded.value);
  return EstimateMean(values);
}

// A side of a pair that never reached the target counts with its total, a lower bound, so the
// difference is never overstated.
Comparison CompareEfforts(const EffortTo& a, const EffortTo& b) {
  Comparison comparison{MeanAsRead(a.reached), MeanAsRead(b.reached), {}};
  SeedBounds values_a = a.reached;
  SeedBounds values_b = b.reached;
  // A side that stopped before the other reached the target gives no bound.
  const auto bound = [&](const EffortTo& spent, const SeedBounds& other, SeedBounds& values) {
    for (const auto& [seed, last] : spent.never) {
      const auto reached = other.find(seed);
      if (reached == other.end() || reached->second.high > last) continue;
      values[seed] = Exactly(last);
      ++comparison.bounded;
    }
  };
  bound(a, b.reached, values_a);
  bound(b, a.reached, values_b);
  comparison.difference = EstimateSum({values_a, values_b}, {1, -1});
  comparison.better = -SureSign(comparison.difference);
  return comparison;
}

}  // namespace

Status StatusOf(const Run& run) {
  if (!run.result) return Status::kUnfinished;
  return run.result->status == "finished" ? Status::kFinished : Status::kDiverged;
}

std::string_view NameOf(Status status) {
  switch (status) {
    case Status::kFinished:
      return "finished";
    case Status::kDiverged:
      return "diverged";
    case Status::kUnfinished:
      return "unfinished";
  }
  return "";
}

int Group::CountOf(Status status) const {
  return static_cast<int>(std::count_if(runs.begin(), runs.end(),
                                        [&](const Run* run) { return StatusOf(*run) == status; }));
}

const Group* Panel::Find(std::string_view value) const {
  const auto found = std::find_if(groups.begin(), groups.end(),
                                  [&](const Group& group) { return group.value == value; });
  return found == groups.end() ? nullptr : &*found;
}

const MetricSpec* Section::Find(std::string_view metric) const {
  const auto found = std::find_if(config->metrics.begin(), config->metrics.end(),
                                  [&](const MetricSpec& spec) { return spec.name == metric; });
  return found == config->metrics.end() ? nullptr : &*found;
}

std::string Section::Named(std::string_view value) const {
  return (config->report.compare.empty() ? "" : Words(config->report.compare) + " ") +
         std::string(value);
}

int Section::IndexOf(std::string_view value) const {
  return static_cast<int>(std::find(values.begin(), values.end(), value) - values.begin());
}

Json AllSettings(const RunConfig& config) {
  Json settings = config.settings;
  settings["preset"] = config.preset;
  return settings;
}

std::string HeadlineUnit(const RunConfig& config) {
  const auto metric = std::ranges::find(config.metrics, config.report.headline, &MetricSpec::name);
  return metric == config.metrics.end() ? "" : DifferenceUnit(*metric);
}

std::vector<Section> Summarize(const std::vector<Run>& runs) {
  // Task and data -> unit -> runs.
  std::map<std::tuple<std::string, std::string, std::string>,
           std::map<std::string, std::vector<const Run*>>>
      sections;
  for (const Run& run : runs) {
    const RunConfig::Data& data = run.config.data;
    sections[{run.config.task, data.name, data.sha256}][HeadlineUnit(run.config)].push_back(&run);
  }
  std::vector<Section> summaries;
  for (auto& [key, units] : sections) {
    for (auto& [unit, members] : units) {
      Section& section = summaries.emplace_back(MakeSection(std::move(members)));
      section.data = section.config->data.name;
      if (units.size() > 1 && !unit.empty()) section.data += ", " + unit;
    }
  }
  return summaries;
}

Measure HeadlineMeasure(const Section& section) {
  bool any = false;
  for (const Run* run : section.runs) {
    if (StatusOf(*run) != Status::kFinished) continue;
    any = true;
    if (!Read(*run, section.config->report.headline, Measure::kBest)) return Measure::kFinal;
  }
  return any ? Measure::kBest : Measure::kFinal;
}

SeedValues ValuesOf(const Group& group, const std::string& metric, Measure measure) {
  SeedValues values;
  for (const Run* run : group.runs) {
    if (const auto value = Read(*run, metric, measure)) values[run->config.seed] = *value;
  }
  return values;
}

Estimate TrainingSeconds(const Group& group) {
  std::vector<double> seconds;
  for (const Run* run : group.runs) {
    if (StatusOf(*run) == Status::kFinished) seconds.push_back(run->result->seconds);
  }
  return EstimateMean(seconds);
}

bool HasMeasure(const Group& group, const MetricSpec& metric, Measure measure) {
  if (measure == Measure::kCatchUp) return !BestPoints(group, metric).empty();
  if (measure != Measure::kStepsTo) return !ValuesOf(group, metric.name, measure).empty();
  return std::ranges::any_of(group.runs, [&](const Run* run) {
    return StatusOf(*run) == Status::kFinished && !PointsOf(*run, metric.name).empty();
  });
}

Comparison CompareSum(const std::vector<const Group*>& groups, const std::vector<double>& weights,
                      const MetricSpec& metric, Measure measure) {
  std::vector<SeedBounds> values;
  for (const Group* group : groups) values.push_back(BoundedValues(*group, metric.name, measure));
  Comparison comparison{MeanAsRead(values[0]), MeanAsRead(values[1]), EstimateSum(values, weights)};
  const bool lower = IsEffort(measure) || metric.lower_is_better;
  comparison.better = SureSign(comparison.difference) * (lower ? -1 : 1);
  return comparison;
}

Comparison Compare(const Group& a, const Group& b, const MetricSpec& metric, Measure measure) {
  return CompareSum({&a, &b}, {1, -1}, metric, measure);
}

Comparison CompareSteps(const Group& a, const Group& b, const MetricSpec& metric, double target) {
  return CompareEfforts(StepsOf(a, metric, target), StepsOf(b, metric, target));
}

Comparison CompareCatchUp(const Group& a, const Group& b, const MetricSpec& metric, Effort effort) {
  const auto best = BestPoints(b, metric);
  const auto target = [&](int64_t seed) -> std::optional<double> {
    const auto found = best.find(seed);
    if (found == best.end()) return std::nullopt;
    return found->second.point.value.mean;
  };
  EffortTo own;
  for (const auto& [seed, of_seed] : best) own.reached[seed] = of_seed.At(effort);
  return CompareEfforts(EffortOf(a, metric, target, effort), own);
}

CatchUp CatchUpWith(const Group& group, const Group& other, const MetricSpec& metric) {
  const auto best = BestPoints(other, metric);
  CatchUp catch_up;
  std::vector<Bounded> steps, seconds;
  for (const Run* run : group.runs) {
    const auto target = best.find(run->config.seed);
    if (StatusOf(*run) == Status::kUnfinished || target == best.end()) continue;
    if (target->second.point.step == 0) continue;  // no ratio to 0 steps
    ++catch_up.of;
    const auto points = PointsOf(*run, metric.name);
    const Curve::Point* first = FirstBeyond(points, metric, target->second.point.value.mean);
    if (!first) continue;
    ++catch_up.count;
    for (const Effort effort : {Effort::kSteps, Effort::kSeconds}) {
      (effort == Effort::kSteps ? steps : seconds)
          .push_back(Ratio(Since(points, *first, effort), target->second.At(effort)));
    }
  }
  catch_up.steps = EstimateDifference(std::move(steps), 0);
  catch_up.seconds = EstimateDifference(std::move(seconds), 0);
  return catch_up;
}

const MetricSpec* ChosenBy(const Section& section) {
  for (const Run* run : section.runs) {
    if (run->result && run->result->best) return section.Find(run->result->best->by);
  }
  return nullptr;
}

Reached Reach(const Group& group, const MetricSpec& metric, double target) {
  Reached reached;
  std::vector<double> steps;
  std::vector<double> seconds;
  for (const Run* run : group.runs) {
    if (StatusOf(*run) == Status::kUnfinished) continue;
    ++reached.of;
    const auto points = PointsOf(*run, metric.name);
    const Curve::Point* first = FirstBeyond(points, metric, target);
    if (!first) continue;
    ++reached.count;
    steps.push_back(static_cast<double>(first->step));
    seconds.push_back(first->seconds);
  }
  reached.steps = EstimateMean(steps);
  reached.seconds = EstimateMean(seconds);
  return reached;
}

Curve CurveOf(const Group& group, const std::string& metric) {
  Curve curve;
  const Status counted =
      group.CountOf(Status::kFinished) > 0 ? Status::kFinished : Status::kUnfinished;
  struct Sums {
    std::vector<double> values;
    std::vector<double> seconds;
  };
  std::map<int64_t, Sums> steps;
  for (const Run* run : group.runs) {
    const auto points = PointsOf(*run, metric);
    if (points.empty()) continue;
    curve.single.push_back({run, {}});
    const bool counts = StatusOf(*run) == counted;
    curve.seeds += counts;
    for (const auto& [step, point] : points) {
      curve.single.back().points.push_back(point);
      if (!counts) continue;
      steps[step].values.push_back(point.value.mean);
      steps[step].seconds.push_back(point.seconds);
    }
  }
  for (const auto& [step, sums] : steps) {
    if (static_cast<int>(sums.values.size()) < curve.seeds) continue;
    curve.mean.push_back({step, EstimateMean(sums.seconds).mean, EstimateMean(sums.values)});
  }
  return curve;
}

OtherLoad OtherLoadOf(const Group& group) {
  std::map<std::string, std::vector<double>> shares;  // threads -> CPU seconds a second
  bool any = false, unknown = false;
  for (const Run* run : group.runs) {
    if (StatusOf(*run) != Status::kFinished || !(run->result->seconds > 0)) continue;
    any = true;
    if (!run->result->cpu_seconds) {
      unknown = true;
      continue;
    }
    const auto threads = run->config.stamps.find("threads");
    shares[threads == run->config.stamps.end() ? "" : threads->second].push_back(
        *run->result->cpu_seconds / run->result->seconds);
  }
  for (const auto& [threads, values] : shares) {
    const double expected = std::max(1.0, *std::ranges::max_element(values));
    if (*std::ranges::min_element(values) < kMinCpuShare * expected) return OtherLoad::kDisturbed;
  }
  return any && !unknown ? OtherLoad::kNone : OtherLoad::kUnknown;
}

std::optional<double> CasesPerSecond(const Run& run) {
  if (run.evaluations.empty()) return std::nullopt;
  const Evaluation& last = run.evaluations.back();
  if (!(last.seconds > 0) || !std::isfinite(last.seconds)) return std::nullopt;
  return static_cast<double>(last.cases) / last.seconds;
}

}  // namespace planish::lab
