#include "lab/theory/analyses.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lab/error.h"

namespace planish::lab {
namespace {

// The use of settings that the call does not read.
SettingUse UnusedOf(const AnalysisInput& input) {
  return input.runs.empty() ? SettingUse::kRun : SettingUse::kRandomData;
}

// Fills the lists that are not given, and checks the others.
void CompleteLists(const TheoryAnalysis& analysis, AnalysisInput& input,
                   nlohmann::ordered_json& settings) {
  for (const AnalysisList& list : analysis.lists) {
    if (list.use == UnusedOf(input)) {
      if (!input.lists.contains(list.name)) continue;
      throw UsageError(fmt::format(
          "[analyze {}] --{} must not be given {} a run, got {}", analysis.name, list.name,
          input.runs.empty() ? "without" : "with", fmt::join(input.lists[list.name], ",")));
    }
    const auto [names, is_default] =
        input.lists.try_emplace(list.name, list.value.empty() ? list.choices : list.value);
    for (const std::string& name : names->second) {
      if (std::ranges::count(names->second, name) > 1) {
        throw UsageError(fmt::format("[analyze {}] --{} must have each name once, got {}",
                                     analysis.name, list.name, fmt::join(names->second, ",")));
      }
      if (std::ranges::count(list.choices, name) == 1) continue;
      throw UsageError(fmt::format("[analyze {}] --{} must be names of {}, got \"{}\"",
                                   analysis.name, list.name, fmt::join(list.choices, ", "), name));
    }
    if (names->second.empty()) {
      throw UsageError(
          fmt::format("[analyze {}] --{} must not be empty", analysis.name, list.name));
    }
    settings[list.name] = names->second;
  }
  for (const auto& [name, value] : input.lists) {
    if (std::ranges::count(analysis.lists, name, &AnalysisList::name) == 0) {
      throw UsageError(
          fmt::format("[analyze {}] setting must be one of its own, got {}", analysis.name, name));
    }
  }
}

void CheckFiles(const TheoryAnalysis& analysis, const AnalysisInput& input) {
  const bool reads_runs =
      analysis.files == AnalysisFiles::kRun || analysis.files == AnalysisFiles::kRuns;
  if (!input.runs.empty() && !reads_runs) {
    throw UsageError(fmt::format("[analyze {}] does not read a run, got {}", analysis.name,
                                 input.runs[0].string()));
  }
  if (input.runs.size() > 1 && analysis.files == AnalysisFiles::kRun) {
    throw UsageError(fmt::format("[analyze {}] RUN must be one folder, got {}", analysis.name,
                                 input.runs.size()));
  }
  if (input.data &&
      (analysis.files == AnalysisFiles::kNone || (reads_runs && input.runs.empty()))) {
    throw UsageError(fmt::format("[analyze {}] reads no data{}, got {}", analysis.name,
                                 reads_runs ? " without a run" : "", input.data->string()));
  }
}

}  // namespace

std::span<const TheoryAnalysis> Analyses() {
  static const std::vector<TheoryAnalysis> all = {
      GradientStatistics(), AdaNormTheory(),        FisherGeometry(),
      Invariance(),         Reparametrization(),    InitialGains(),
      RecurrentStability(), ImplicitLearningRate(), CovariateShift()};
  return all;
}

TheoryResult RunAnalysis(const TheoryAnalysis& analysis, const std::map<std::string, double>& given,
                         AnalysisInput input) {
  CheckFiles(analysis, input);
  std::map<std::string, double> values;
  nlohmann::ordered_json settings = nlohmann::ordered_json::object();
  for (const AnalysisSetting& setting : analysis.settings) {
    const auto found = given.find(setting.name);
    if (setting.use == UnusedOf(input)) {
      if (found == given.end()) continue;
      throw UsageError(fmt::format("[analyze {}] --{} must not be given {} a run, got {:.10g}",
                                   analysis.name, setting.name,
                                   input.runs.empty() ? "without" : "with", found->second));
    }
    const double value = found == given.end() ? setting.value : found->second;
    const bool fits = value >= setting.minimum && value <= setting.maximum &&
                      (!setting.is_whole || std::floor(value) == value);
    if (!fits) {
      throw UsageError(
          fmt::format("[analyze {}] --{} must be {} from {:.10g} to {:.10g}, got {:.10g}",
                      analysis.name, setting.name, setting.is_whole ? "a whole number" : "a number",
                      setting.minimum, setting.maximum, value));
    }
    values[setting.name] = value;
    if (setting.is_whole) {
      settings[setting.name] = static_cast<int64_t>(value);
    } else {
      settings[setting.name] = value;
    }
  }
  for (const auto& [name, value] : given) {
    if (!values.contains(name)) {
      throw UsageError(
          fmt::format("[analyze {}] setting must be one of its own, got {}", analysis.name, name));
    }
  }
  CompleteLists(analysis, input, settings);
  TheoryResult result = analysis.measure(AnalysisSettings(std::move(values), std::move(input)));
  result.name = analysis.name;
  result.title = analysis.summary;
  settings.update(result.settings);
  result.settings = std::move(settings);
  return result;
}

}  // namespace planish::lab
