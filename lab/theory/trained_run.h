#ifndef PLANISH_LAB_THEORY_TRAINED_RUN_H_
#define PLANISH_LAB_THEORY_TRAINED_RUN_H_

#include <filesystem>
#include <string>

#include "lab/engine/trained.h"
#include "lab/run/results.h"
#include "lab/theory/analyses.h"

namespace planish::lab {

/// A run that an analysis reads, in evaluation mode.
struct AnalyzedRun {
  Run run;
  Trained trained;

  /// Returns the run for messages and captions: "pi-mnist, norm layer, seed 1".
  std::string Description() const;
};

/// Opens a run of a call. Throws what ReadRun and OpenTrained throw, and UsageError if there is no
/// such task.
AnalyzedRun OpenAnalyzedRun(const AnalysisSettings& settings, const std::filesystem::path& folder);

/// Opens the run of a call, which has one, and adds its task, settings and data to `result`.
AnalyzedRun OpenAnalyzedRun(const AnalysisSettings& settings, TheoryResult& result);

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_TRAINED_RUN_H_
