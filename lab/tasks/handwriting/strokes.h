#ifndef PLANISH_LAB_TASKS_HANDWRITING_STROKES_H_
#define PLANISH_LAB_TASKS_HANDWRITING_STROKES_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace planish::lab {

/// Position of the pen, y downwards, in units of the data.
struct PenPoint {
  float x = 0;
  float y = 0;
  bool lifts = false;  ///< set if the pen leaves the paper after this point

  bool operator==(const PenPoint&) const = default;
};

/// Line of text and its writing: two points or more. Within a stroke, no point repeats the one
/// before.
struct WrittenLine {
  std::string text;  ///< UTF-8
  std::vector<PenPoint> points;
};

/// Lines for training and evaluation, with the fields of RunConfig::Data. No writer, or no form, is
/// in two of the parts.
struct Handwriting {
  std::vector<WrittenLine> train, valid, test;
  std::string name;         ///< "iam-ondb", "digilets", or "synthetic strokes"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence
  std::string sha256;       ///< HashLines of the three parts in order
};

/// Choice of lines.
struct LineRequest {
  int64_t train = 1'000;   ///< maximum number of lines for training
  int64_t held_out = 100;  ///< maximum number for validation and test each
  /// Characters that lines consist of, UTF-8, besides blanks; empty: all that there are.
  std::string symbols = {};
  /// Writers as numbers and ranges, "1-20 33"; empty: all.
  std::string writers = {};
};

/// Returns the writers of `found` that `text` lists as numbers and ranges, "1-20 33". Throws
/// UsageError if `text` has another form, or a number or range without any of `found`.
std::set<int64_t> ChooseWriters(const std::string& text, const std::set<int64_t>& found);

/// Returns the SHA-256 of texts, coordinates and lifts.
std::string HashLines(const Handwriting& data);

/// Returns `points` without those that repeat the one before within a stroke (a resting pen). If
/// such a point ends a stroke, the one before ends it instead.
std::vector<PenPoint> WithoutRests(const std::vector<PenPoint>& points);

/// Reads IAM-OnDB in `folder` or its subfolder iam, iam-ondb or IAM-OnDB, else DigiLeTs in the
/// folder or its subfolder digilets. Without a folder, returns MakeStrokes. Throws DataError for a
/// folder with neither, and like ReadIamOnDb and ReadDigilets. Throws UsageError for `symbols` or
/// `writers` that the data does not have.
Handwriting OpenHandwriting(const std::optional<std::filesystem::path>& folder,
                            const LineRequest& request);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_STROKES_H_
