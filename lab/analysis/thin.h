#ifndef PLANISH_LAB_ANALYSIS_THIN_H_
#define PLANISH_LAB_ANALYSIS_THIN_H_

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/run/results.h"

namespace planish::lab {

/// Returns a run with only the data that the report draws: the metrics that report and papers name,
/// at about 60 evaluations (first, last, chosen by validation, first beyond each target, others
/// evenly spaced).
/// Keeps six digits of each value and only the last gradients. Replaces paths in texts by file
/// names.
Run Thinned(Run run);

/// Result of ThinRuns.
struct ThinnedRuns {
  size_t count = 0;                 ///< runs written
  std::vector<std::string> faults;  ///< FoundRuns::faults
};

/// Thins each run at or below `from` into the corresponding place below `to`: config.json,
/// metrics.jsonl and result.json.
/// Throws like FindRuns, and RunError if `to` is `from` or inside it, or a file cannot be written.
ThinnedRuns ThinRuns(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_THIN_H_
