#ifndef PLANISH_LAB_ANALYSIS_THIN_H_
#define PLANISH_LAB_ANALYSIS_THIN_H_

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/run/results.h"

namespace planish::lab {

/// Returns a run with only the data that the report draws: the metrics that report and papers name,
/// at about 60 evaluations. These are the first, the last, the one chosen by validation, the first
/// beyond each target, and others evenly spaced. Keeps six digits of each value and only the last
/// gradients. Replaces paths in texts by file names.
Run Thinned(Run run);

/// Result of ThinRuns and ThinRunsToFolders.
struct ThinnedRuns {
  size_t count = 0;                 ///< runs that are in `to` now
  std::vector<std::string> faults;  ///< FoundRuns::faults
  std::vector<std::string> kept;    ///< a sentence for each run that AddToArchive does not add
};

/// Thins each run at or below `from`, a folder or an archive, and adds it to an archive at the
/// corresponding place below `to`. The runs of a table's column share an archive: those of a folder
/// whose names differ only in the compared value and the seed.
/// Leaves out runs whose predictions cannot be read.
/// Throws like FindRuns and AddToArchive, and RunError if `to` is `from` or inside it.
ThinnedRuns ThinRuns(const std::filesystem::path& from, const std::filesystem::path& to);

/// Like ThinRuns, but writes a run folder for each run, with config.json, metrics.jsonl,
/// result.json and predictions.csv.gz. Leaves a folder that contains the same files, so a failed
/// call can be repeated. Throws RunError before writing any if one of the folders contains another
/// run.
ThinnedRuns ThinRunsToFolders(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_THIN_H_
