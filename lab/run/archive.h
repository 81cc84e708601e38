#ifndef PLANISH_LAB_RUN_ARCHIVE_H_
#define PLANISH_LAB_RUN_ARCHIVE_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Archives of runs: NAME.runs.tar.gz, with the files RUN/config.json, RUN/metrics.jsonl,
// RUN/result.json and RUN/predictions.csv.gz of each run, and nothing else (docs/files.md).
namespace planish::lab {

/// Contents of the files of a run that the report reads.
struct RunFiles {
  std::string config;                           ///< config.json
  std::string metrics;                          ///< metrics.jsonl; empty if it does not exist
  std::optional<std::string> result;            ///< result.json, if it exists
  std::optional<std::string> predictions = {};  ///< predictions.csv.gz, if it exists

  bool operator==(const RunFiles&) const = default;
};

/// Runs of an archive by the names of their folders.
using ArchivedRuns = std::map<std::string, RunFiles>;

/// End of an archive's file name.
inline constexpr std::string_view kArchiveEnding = ".runs.tar.gz";

/// Maximum size of an archive in bytes, packed and unpacked.
inline constexpr int64_t kMaxArchiveBytes = int64_t{256} << 20;

/// Returns true if `path` exists, is not a folder and its name is that of an archive.
bool IsArchive(const std::filesystem::path& path);

/// Reads an archive. Throws DataError naming it if it is truncated or damaged, unpacks to more than
/// kMaxArchiveBytes, or contains anything but the files of runs, each once. Throws RunError if it
/// cannot be read or is not a regular file.
ArchivedRuns ReadArchive(const std::filesystem::path& path);

/// Adds runs to an archive, or creates it and its folder (docs/files.md#archives). Returns the
/// names of the runs that are not added. Replaces the file atomically, and only if a run changes.
/// Other processes that add to archives of this folder wait. Throws like ReadArchive if the archive
/// cannot be read. Throws RunError if the name of a run is longer than 155 bytes or the file cannot
/// be written.
std::vector<std::string> AddToArchive(const std::filesystem::path& path, const ArchivedRuns& runs);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_ARCHIVE_H_
