#ifndef PLANISH_LAB_THEORY_RESULT_FILES_H_
#define PLANISH_LAB_THEORY_RESULT_FILES_H_

#include <filesystem>
#include <string>
#include <vector>

#include "lab/theory/result.h"

namespace planish::lab {

/// Results found in files that `planish analyze --json` has written.
struct FoundTheory {
  std::vector<TheoryResult> results;         ///< sorted by path, no two equal
  std::vector<std::string> faults;           ///< a sentence for each unreadable file, naming it
  std::vector<std::filesystem::path> roots;  ///< roots that have such files and no runs
};

/// Reads the results in each root that is a JSON file, and in the JSON files at or below each
/// folder. Equal results count once. Throws RunError if a folder cannot be read.
FoundTheory FindTheoryResults(const std::vector<std::filesystem::path>& roots);

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_RESULT_FILES_H_
