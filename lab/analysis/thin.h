#ifndef PLANISH_LAB_ANALYSIS_THIN_H_
#define PLANISH_LAB_ANALYSIS_THIN_H_

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/run/results.h"

namespace planish::lab {

/// A run with what the report draws of it and no more: of metrics.jsonl the metrics that report and
/// papers name, at no more than about 60 evaluations (the first, the last, that which validation
/// chose, the first beyond each target, others evenly between), six digits of each number, and of
/// the gradients the last. Paths in its texts become the name of their file.
Run Thinned(Run run);

/// What ThinRuns has done.
struct ThinnedRuns {
  size_t count = 0;                 ///< runs written
  std::vector<std::string> faults;  ///< FoundRuns::faults
};

/// Writes each run at or below `from`, thinned, to the same place below `to`: config.json,
/// metrics.jsonl and result.json. Throws what FindRuns throws, and RunError when `to` is `from` or
/// inside it, or a file cannot be written.
ThinnedRuns ThinRuns(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_THIN_H_
