#ifndef PLANISH_LAB_TASKS_HANDWRITING_DIGILETS_H_
#define PLANISH_LAB_TASKS_HANDWRITING_DIGILETS_H_

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lab/tasks/handwriting/strokes.h"

namespace planish::lab {

/// Characters of DigiLeTs, in the order of its labels.
inline constexpr std::string_view kDigiletsCharacters =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Writer of DigiLeTs: all ways in which each character was written.
struct DigiletsWriter {
  /// Indexed like kDigiletsCharacters. Points have y upwards, 0 to 1.
  std::array<std::vector<std::vector<PenPoint>>, kDigiletsCharacters.size()> ways;
  int64_t outside = 0;  ///< ways that leave the unit square, left out
  int64_t rests = 0;    ///< points that WithoutRests left out
};

/// Parses a file of DigiLeTs (Fabi, Otte & Butz 2021, "complete"). Each way of writing a character
/// has two lines: `x y pressure starts_stroke seconds` for every point, and a one-hot label of 62
/// values. Leaves out and counts ways that leave the unit square, which are slips of the tablet.
/// Throws DataError naming `name`, the line and the error, for malformed lines and coordinates
/// beyond 100 in magnitude, and for a file without ways. A character can be missing.
DigiletsWriter ParseDigilets(const std::vector<std::string>& lines, const std::string& name);

/// Returns true if `folder` has a file of DigiLeTs: a number, .txt or .txt.gz.
bool IsDigilets(const std::filesystem::path& folder);

/// Composes lines of about 24 characters from the DigiLeTs in `folder`, each of one writer's
/// (docs/tasks/handwriting.md), of the symbols and writers of `request`. Returns as many lines as
/// it asks for, the same on every machine; fewer lines are a prefix of more. A symbol that a writer
/// lacks is in none of his lines. Writers without any are left out and counted. Throws DataError if
/// there are fewer than three writers, and like ReadLines and ParseDigilets. Throws UsageError for
/// symbols that are not DigiLeTs' and for writers that have no file.
Handwriting ReadDigilets(const std::filesystem::path& folder, const LineRequest& request);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_DIGILETS_H_
