#ifndef PLANISH_LAB_RUN_WRITER_H_
#define PLANISH_LAB_RUN_WRITER_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lab/error.h"
#include "lab/run/posix_file.h"
#include "lab/run/results.h"

namespace planish::lab {

/// Error of a run that another process is using.
class RunInUse : public RunError {
 public:
  using RunError::RunError;
};

/// Writer of the files of one run (see results.h). While it exists, no other process or RunWriter
/// writes the same folder. Never writes through a link. Every function throws RunError
/// - with the system's reason if a file cannot be written,
/// - naming the key if a value is NaN or infinite, which JSON cannot store,
/// - if the folder or the file has been removed, moved or replaced.
class RunWriter {
 public:
  /// Creates `folder` if it is missing and takes its lock. Throws RunInUse if another process uses
  /// the run.
  explicit RunWriter(std::filesystem::path folder);

  /// Throws RunError if the folder has been removed, moved or replaced since the constructor.
  void CheckFolder() const;

  /// Replaces config.json.
  void WriteConfig(const RunConfig& config);

  /// Appends one line to metrics.jsonl with one write. The line survives the end of this process;
  /// after Sync also a power loss.
  void Append(const Evaluation& evaluation);

  /// Flushes metrics.jsonl to disk. Call it before writing a checkpoint, which must not outlive the
  /// evaluations before it.
  void Sync();

  /// Keeps the evaluations up to `step` and removes result.json and predictions.csv.gz: the run
  /// continues from there.
  void TruncateAfter(int64_t step);

  /// Writes predictions.csv.gz if there are predictions, then result.json: the run has ended.
  void Finish(const RunResult& result, const std::optional<Predictions>& predictions = {});

  const std::filesystem::path& folder() const { return folder_; }

 private:
  void OpenMetrics();
  void CheckMetrics() const;

  std::filesystem::path folder_;
  FileDescriptor lock_;
  FileDescriptor metrics_;  // open after the first Append
};

/// Returns true if a RunWriter of this or another process is using the run of `folder`.
bool IsInUse(const std::filesystem::path& folder);

/// Returns the differences of `b` from `a`, one line each such as "batch_size: 128 instead of 4"
/// (b's value first): task, preset, every setting, seed, the data's name and sha256.
/// Empty if both determine the same run. Ignores stamps, metrics and the report's description.
std::vector<std::string> ConfigDifferences(const RunConfig& a, const RunConfig& b);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_WRITER_H_
