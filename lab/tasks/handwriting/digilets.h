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

/// The characters of DigiLeTs, in the order of its labels.
inline constexpr std::string_view kDigiletsCharacters =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// A writer of DigiLeTs: all ways in which each character was written.
struct DigiletsWriter {
  /// By kDigiletsCharacters. Points have y upwards, 0 to 1.
  std::array<std::vector<std::vector<PenPoint>>, kDigiletsCharacters.size()> ways;
  int64_t outside = 0;  ///< ways that were left out because they leave the unit square
  int64_t rests = 0;    ///< points that WithoutRests left out
};

/// The ways of a file of DigiLeTs (Fabi, Otte & Butz 2021, "complete"): two lines each, of `x y
/// pressure starts_stroke seconds` for every point, and of a label in one-hot form. Ways that leave
/// the unit square, slips of the tablet, are left out and counted. Throws DataError that names
/// `name`, the line and what is wrong: not five numbers a point, a number that is none or not
/// finite, a coordinate beyond 100 in size, a first point that starts no stroke, a way of a single
/// place, a label of other than 62 numbers or not one 1, an odd number of lines, a character
/// without a way.
DigiletsWriter ParseDigilets(const std::vector<std::string>& lines, const std::string& name);

/// Whether `folder` has a file of DigiLeTs: a number, .txt or .txt.gz.
bool IsDigilets(const std::filesystem::path& folder);

/// Lines composed of the characters of DigiLeTs in `folder`: random words and numbers, about 24
/// characters, each line of one writer's characters, each a random one of that writer's ways. The
/// tablet's steps, 1/274 in x and 1/240 in y, are filled up at random, since a density of numbers
/// that repeat has no bound. Every tenth writer by name, from the ninth on, is for validation, the
/// one after it for test. As many lines as `counts` says; fewer are the first ones of more. The
/// same on every machine. Throws DataError when there are fewer than ten writers, and what
/// ReadLines and ParseDigilets throw.
Handwriting ReadDigilets(const std::filesystem::path& folder, const LineCounts& counts);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_DIGILETS_H_
