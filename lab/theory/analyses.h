#ifndef PLANISH_LAB_THEORY_ANALYSES_H_
#define PLANISH_LAB_THEORY_ANALYSES_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/theory/result.h"

// The analyses of `planish analyze`. Each measures statements of one part of the papers' theory on
// random data, in a training of its own, or on a trained run. A new analysis is a file and a row of
// Analyses().
namespace planish::lab {

/// The calls that read a setting, of an analysis of random data or a run.
enum class SettingUse { kAlways, kRandomData, kRun };

/// A number that an analysis takes.
struct AnalysisSetting {
  std::string name;
  std::string help;
  double value;             ///< default
  double minimum, maximum;  ///< both allowed
  bool is_whole = true;
  SettingUse use = SettingUse::kAlways;
};

/// A list of names that an analysis takes, such as norms.
struct AnalysisList {
  std::string name;
  std::string help;
  std::vector<std::string> choices;
  std::vector<std::string> value;  ///< default; empty: all choices
  SettingUse use = SettingUse::kAlways;
};

/// What a call gives beside its numbers.
struct AnalysisInput {
  std::map<std::string, std::vector<std::string>> lists;  ///< by the names of AnalysisList
  std::vector<std::filesystem::path> runs;                ///< folders of trained runs
  std::optional<std::filesystem::path> data;              ///< of the runs or of a training
  std::function<void(const std::string&)> progress = {};  ///< shows a text; empty: no progress
};

/// The settings of a call, by name.
class AnalysisSettings {
 public:
  AnalysisSettings(std::map<std::string, double> values, AnalysisInput input)
      : values_(std::move(values)), input_(std::move(input)) {}

  double Number(const std::string& name) const { return values_.at(name); }
  int64_t Whole(const std::string& name) const { return static_cast<int64_t>(values_.at(name)); }
  const std::vector<std::string>& List(const std::string& name) const {
    return input_.lists.at(name);
  }
  const AnalysisInput& input() const { return input_; }
  bool has_run() const { return !input_.runs.empty(); }

  /// Shows the progress of a measurement that takes seconds: "seed 3 of 10".
  void ShowProgress(const std::string& text) const {
    if (input_.progress) input_.progress(text);
  }

 private:
  std::map<std::string, double> values_;
  AnalysisInput input_;
};

/// Files that an analysis reads.
enum class AnalysisFiles {
  kNone,
  kData,  ///< optionally, data of a task that it trains; by default the embedded data
  kRun,   ///< optionally, a trained run, and its data
  kRuns,  ///< optionally, one or several trained runs, and their data
};

struct TheoryAnalysis {
  std::string name;
  std::string summary;
  std::vector<AnalysisSetting> settings;
  std::vector<AnalysisList> lists = {};
  AnalysisFiles files = AnalysisFiles::kNone;
  /// Computes the result, except for its name and title, and the settings of the call: the
  /// function adds what describes its files, such as the data's name.
  std::function<TheoryResult(const AnalysisSettings&)> measure;
};

/// Returns all analyses, in the order of `planish analyze --help`.
std::span<const TheoryAnalysis> Analyses();

/// Runs an analysis with the settings in `given` and `input`, and the defaults of the others.
/// Throws UsageError for an unknown setting, one that the call does not read, a value out of its
/// range, a list that is empty or has an unknown name, and files that the analysis does not read.
TheoryResult RunAnalysis(const TheoryAnalysis& analysis, const std::map<std::string, double>& given,
                         AnalysisInput input = {});

TheoryAnalysis GradientStatistics();    ///< Theorem 1 of Xu et al. 2019
TheoryAnalysis AdaNormTheory();         ///< Theorem 2 and Eq. 7 of Xu et al. 2019
TheoryAnalysis FisherGeometry();        ///< section 5.2 of Ba, Kiros & Hinton 2016
TheoryAnalysis Invariance();            ///< section 5.1 of Ba, Kiros & Hinton 2016
TheoryAnalysis Reparametrization();     ///< section 4 of Ba, Kiros & Hinton 2016
TheoryAnalysis InitialGains();          ///< supplement of Ba, Kiros & Hinton 2016
TheoryAnalysis RecurrentStability();    ///< section 3.1 of Ba, Kiros & Hinton 2016
TheoryAnalysis ImplicitLearningRate();  ///< section 5.2.2 of Ba, Kiros & Hinton 2016
TheoryAnalysis CovariateShift();        ///< section 3 of Ba, Kiros & Hinton 2016

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_ANALYSES_H_
