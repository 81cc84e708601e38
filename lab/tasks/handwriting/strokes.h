#ifndef PLANISH_LAB_TASKS_HANDWRITING_STROKES_H_
#define PLANISH_LAB_TASKS_HANDWRITING_STROKES_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace planish::lab {

/// A place that the pen passed, y downwards, in units of the data.
struct PenPoint {
  float x = 0;
  float y = 0;
  bool lifts = false;  ///< whether the pen leaves the paper after this point

  bool operator==(const PenPoint&) const = default;
};

/// A line of text and how somebody wrote it: two points or more, none of which repeats the one
/// before it within a stroke.
struct WrittenLine {
  std::string text;  ///< UTF-8
  std::vector<PenPoint> points;
};

/// Lines to train and to measure on, with what RunConfig::Data records of them. No writer, or no
/// form, is in two of the parts.
struct Handwriting {
  std::vector<WrittenLine> train, valid, test;
  std::string name;         ///< "iam-ondb", "digilets", or "made strokes"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence for people
  std::string sha256;       ///< HashLines of the three parts, one after the other
};

/// How many lines are wanted, at most, to train on, and for validation and test each.
struct LineCounts {
  int64_t train = 1'000;
  int64_t held_out = 100;
};

/// SHA-256 of texts, coordinates and lifts.
std::string HashLines(const Handwriting& data);

/// `points` without those that repeat the one before them within a stroke: a pen that rests. Where
/// such a point ends a stroke, the one before it does.
std::vector<PenPoint> WithoutRests(const std::vector<PenPoint>& points);

/// IAM-OnDB in `folder`, or in its folder iam, iam-ondb or IAM-OnDB; else DigiLeTs in the folder,
/// or in its folder digilets; without a folder MakeStrokes. Throws DataError when there is a folder
/// with neither, and what ReadIamOnDb and ReadDigilets throw.
Handwriting OpenHandwriting(const std::optional<std::filesystem::path>& folder,
                            const LineCounts& counts);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_STROKES_H_
