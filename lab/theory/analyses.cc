#include "lab/theory/analyses.h"

#include <fmt/format.h>

#include <cmath>

#include "lab/error.h"

namespace planish::lab {

std::span<const TheoryAnalysis> Analyses() {
  static const std::vector<TheoryAnalysis> all = {GradientStatistics(), AdaNormTheory(),
                                                  FisherGeometry(), Reparametrization(),
                                                  RecurrentStability()};
  return all;
}

TheoryResult RunAnalysis(const TheoryAnalysis& analysis,
                         const std::map<std::string, double>& given) {
  std::map<std::string, double> values;
  nlohmann::ordered_json settings = nlohmann::ordered_json::object();
  for (const AnalysisSetting& setting : analysis.settings) {
    const auto found = given.find(setting.name);
    const double value = found == given.end() ? setting.value : found->second;
    const bool fits = value >= setting.minimum && value <= setting.maximum &&
                      (!setting.is_whole || std::floor(value) == value);
    if (!fits) {
      throw UsageError(
          fmt::format("[analyze {}] {} must be {} from {:.10g} to {:.10g}, got {:.10g}",
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
  TheoryResult result = analysis.measure(AnalysisSettings(std::move(values)));
  result.name = analysis.name;
  result.title = analysis.summary;
  result.settings = std::move(settings);
  return result;
}

}  // namespace planish::lab
