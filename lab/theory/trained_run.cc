#include "lab/theory/trained_run.h"

#include <fmt/format.h>

#include "lab/engine/settings.h"
#include "lab/run/run_path.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

std::string AnalyzedRun::Description() const {
  const std::string& compared = run.config.report.compare;
  return fmt::format("{}, {} {}, seed {}", run.config.task, compared,
                     Spelled(run.config.settings.at(compared)), run.config.seed);
}

AnalyzedRun OpenAnalyzedRun(const AnalysisSettings& settings, const std::filesystem::path& folder) {
  CheckRunPath(folder);
  AnalyzedRun opened{.run = ReadRun(folder), .trained = {}};
  opened.trained = OpenTrained(FindTask(opened.run.config.task), opened.run, settings.input().data);
  return opened;
}

AnalyzedRun OpenAnalyzedRun(const AnalysisSettings& settings, TheoryResult& result) {
  AnalyzedRun opened = OpenAnalyzedRun(settings, settings.input().runs.at(0));
  result.settings["run"] = opened.Description();
  result.settings["data"] = opened.run.config.data.name;
  return opened;
}

}  // namespace planish::lab
