#include "lab/analysis/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>

#include "lab/analysis/format.h"
#include "lab/analysis/summary.h"
#include "lab/run/item_metrics.h"

namespace planish::lab {
namespace {

// Named texts in the order of their addition.
using Texts = std::vector<std::pair<std::string, std::string>>;

// Returns the texts that differ: first by the names of `a`, then by those that only `b` has.
std::vector<ValueDifference> Differences(const Texts& a, const Texts& b) {
  const auto at = [](const Texts& texts, const std::string& name) -> std::string {
    const auto found = std::ranges::find(texts, name, &Texts::value_type::first);
    return found == texts.end() ? "-" : found->second;
  };
  std::vector<ValueDifference> differences;
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(differences, name, &ValueDifference::name) != differences.end()) return;
    if (at(a, name) != at(b, name)) differences.push_back({name, at(a, name), at(b, name)});
  };
  for (const auto& [name, text] : a) add(name);
  for (const auto& [name, text] : b) add(name);
  return differences;
}

Texts SettingTexts(const RunConfig& config) {
  Texts texts = {
      {"task", config.task}, {"preset", config.preset}, {"seed", std::to_string(config.seed)}};
  for (const auto& [name, value] : config.settings.items()) {
    texts.emplace_back(name, SettingText(value));
  }
  return texts;
}

Texts ResultTexts(const Run& run) {
  Texts texts = {{"status", std::string(NameOf(StatusOf(run)))}};
  if (!run.result) return texts;
  const RunResult& result = *run.result;
  if (!result.message.empty()) texts.emplace_back("message", result.message);
  texts.emplace_back("steps", std::to_string(result.steps));
  texts.emplace_back("parameters", std::to_string(result.parameters));
  for (const auto& [name, value] : result.final_values) {
    texts.emplace_back("final " + name, fmt::format("{}", value));
  }
  if (!result.best) return texts;
  texts.emplace_back("best step", std::to_string(result.best->step));
  for (const auto& [name, value] : result.best->values) {
    texts.emplace_back("best " + name, fmt::format("{}", value));
  }
  return texts;
}

Texts MachineTexts(const Run& run) {
  Texts texts(run.config.stamps.begin(), run.config.stamps.end());
  if (run.result) texts.emplace_back("seconds", fmt::format("{}", run.result->seconds));
  return texts;
}

// Returns the metrics of both runs in the order of their tasks.
std::vector<std::string> MetricsOf(const Run& a, const Run& b) {
  std::vector<std::string> names;
  for (const Run* run : {&a, &b}) {
    for (const MetricSpec& metric : run->config.metrics) {
      if (std::ranges::find(names, metric.name) == names.end()) names.push_back(metric.name);
    }
  }
  return names;
}

std::map<int64_t, double> ValuesByStep(const Run& run, const std::string& metric) {
  std::map<int64_t, double> values;
  for (const Curve::Seed& seed : CurveOf({"", {&run}}, metric).single) {
    for (const Curve::Point& point : seed.points) values[point.step] = point.value.mean;
  }
  return values;
}

CurveDifference DifferenceOfCurves(const Run& a, const Run& b, const std::string& metric) {
  CurveDifference difference{.metric = metric};
  const auto values_b = ValuesByStep(b, metric);
  const auto values_a = ValuesByStep(a, metric);
  for (const auto& [step, value] : values_a) {
    const auto other = values_b.find(step);
    if (other == values_b.end()) continue;
    ++difference.common;
    if (value == other->second) continue;
    const CurveDifference::Point point{step, value, other->second};
    if (!difference.first) difference.first = point;
    const auto distance = [](const CurveDifference::Point& p) { return std::abs(p.a - p.b); };
    if (!difference.largest || distance(point) > distance(*difference.largest)) {
      difference.largest = point;
    }
  }
  difference.only_a = static_cast<int>(values_a.size()) - difference.common;
  difference.only_b = static_cast<int>(values_b.size()) - difference.common;
  return difference;
}

// Returns why predictions of two runs are not compared, or an empty text.
std::string WhyNotCompared(const Run& a, const Run& b) {
  for (const auto& [run, name] : {std::pair(&a, "first"), {&b, "second"}}) {
    if (run->predictions) continue;
    if (run->predictions_fault.empty()) return fmt::format("the {} run has none", name);
    return fmt::format("those of the {} run cannot be read ({})", name, run->predictions_fault);
  }
  if (a.config.task != b.config.task) return "the runs are of different tasks";
  if (a.config.data.sha256 != b.config.data.sha256) return "the runs have different data";
  if (a.predictions->columns != b.predictions->columns) return "they have different columns";
  return "";
}

PredictionDifference DifferenceOfPredictions(const Run& run_a, const Run& run_b) {
  PredictionDifference difference{.left_out = WhyNotCompared(run_a, run_b)};
  if (!difference.left_out.empty()) return difference;
  const Predictions &a = *run_a.predictions, &b = *run_b.predictions;
  const std::vector<int64_t>* const labels = a.Find(kLabelColumn);
  const std::vector<int64_t>* const answers_a = a.Find(kPredictionColumn);
  const std::vector<int64_t>* const answers_b = b.Find(kPredictionColumn);
  if (labels && answers_a) difference.right.emplace();
  for (size_t i = 0, j = 0; i < a.items.size() && j < b.items.size();) {
    if (a.items[i] != b.items[j]) {
      a.items[i] < b.items[j] ? ++i : ++j;
      continue;
    }
    ++difference.common;
    if (difference.right && (*labels)[i] != (*b.Find(kLabelColumn))[j]) {
      return {.left_out = "they are of different test items"};
    }
    const bool differs = std::ranges::any_of(
        std::views::iota(size_t{0}, a.columns.size()),
        [&](size_t column) { return a.values[column][i] != b.values[column][j]; });
    difference.differ += differs;
    if (differs && difference.right) {
      const bool a_right = (*answers_a)[i] == (*labels)[i];
      const bool b_right = (*answers_b)[j] == (*labels)[i];
      ++(a_right ? difference.right->a : b_right ? difference.right->b : difference.right->neither);
    }
    ++i;
    ++j;
  }
  difference.only_a = a.size() - difference.common;
  difference.only_b = b.size() - difference.common;
  return difference;
}

}  // namespace

RunDifference Difference(const Run& a, const Run& b) {
  RunDifference difference;
  difference.settings = Differences(SettingTexts(a.config), SettingTexts(b.config));
  const auto data = [](const RunConfig& config) {
    return Texts{{"name", config.data.name}, {"sha256", config.data.sha256}};
  };
  difference.data = Differences(data(a.config), data(b.config));
  for (const std::string& metric : MetricsOf(a, b)) {
    CurveDifference curve = DifferenceOfCurves(a, b, metric);
    if (curve.first || curve.only_a > 0 || curve.only_b > 0) {
      difference.curves.push_back(std::move(curve));
    }
  }
  difference.results = Differences(ResultTexts(a), ResultTexts(b));
  if (a.predictions || b.predictions || !(a.predictions_fault + b.predictions_fault).empty()) {
    difference.predictions = DifferenceOfPredictions(a, b);
  }
  difference.machine = Differences(MachineTexts(a), MachineTexts(b));
  return difference;
}

}  // namespace planish::lab
