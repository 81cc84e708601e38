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

/// Parses a file of DigiLeTs (Fabi, Otte & Butz 2021, "complete"). Each way has two lines: `x y
/// pressure starts_stroke seconds` for every point, and a one-hot label. Leaves out and counts ways
/// that leave the unit square, which are slips of the tablet.
/// Throws DataError naming `name`, the line and the error: not five values a point, a value that is
/// no finite number, a coordinate beyond 100 in magnitude, a first point that starts no stroke, a
/// way of a single position, a label of other than 62 values or not one 1, an odd number of lines,
/// a character without a way.
DigiletsWriter ParseDigilets(const std::vector<std::string>& lines, const std::string& name);

/// Returns true if `folder` has a file of DigiLeTs: a number, .txt or .txt.gz.
bool IsDigilets(const std::filesystem::path& folder);

/// Composes lines from the characters of DigiLeTs in `folder`: random words and numbers, about 24
/// characters, each line from one writer's characters in random ways of that writer. Adds uniform
/// noise of the tablet's resolution, 1/274 in x and 1/240 in y, because the density of repeating
/// values is unbounded.
/// Every tenth writer by name, from the ninth on, is for validation, and the next one for test.
/// Returns the number of lines in `counts`; fewer lines are a prefix of more. The same on every
/// machine.
/// Throws DataError if there are fewer than ten writers, and like ReadLines and ParseDigilets.
Handwriting ReadDigilets(const std::filesystem::path& folder, const LineCounts& counts);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_DIGILETS_H_
