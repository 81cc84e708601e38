#ifndef PLANISH_LAB_THEORY_ANALYSES_H_
#define PLANISH_LAB_THEORY_ANALYSES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/theory/result.h"

// The analyses of `planish analyze`. Each measures statements of one part of the papers' theory on
// random data, in seconds. A new analysis is a file and a row of Analyses().
namespace planish::lab {

/// A number that an analysis takes.
struct AnalysisSetting {
  std::string name;
  std::string help;
  double value;             ///< default
  double minimum, maximum;  ///< both allowed
  bool is_whole = true;
};

/// The settings of a call, by name.
class AnalysisSettings {
 public:
  explicit AnalysisSettings(std::map<std::string, double> values) : values_(std::move(values)) {}

  double Number(const std::string& name) const { return values_.at(name); }
  int64_t Whole(const std::string& name) const { return static_cast<int64_t>(values_.at(name)); }

 private:
  std::map<std::string, double> values_;
};

struct TheoryAnalysis {
  std::string name;
  std::string summary;
  std::vector<AnalysisSetting> settings;
  /// Computes the result, except for name, title and settings.
  std::function<TheoryResult(const AnalysisSettings&)> measure;
};

/// Returns all analyses, in the order of `planish analyze --help`.
std::span<const TheoryAnalysis> Analyses();

/// Runs an analysis with the settings in `given` and the defaults of the others. Throws UsageError
/// for an unknown setting or a value out of its range.
TheoryResult RunAnalysis(const TheoryAnalysis& analysis,
                         const std::map<std::string, double>& given);

TheoryAnalysis GradientStatistics();  ///< Theorem 1 of Xu et al. 2019
TheoryAnalysis AdaNormTheory();       ///< Theorem 2 and Eq. 7 of Xu et al. 2019
TheoryAnalysis FisherGeometry();      ///< section 5.2 of Ba, Kiros & Hinton 2016
TheoryAnalysis Reparametrization();   ///< section 4 of Ba, Kiros & Hinton 2016
TheoryAnalysis RecurrentStability();  ///< section 3.1 of Ba, Kiros & Hinton 2016

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_ANALYSES_H_
