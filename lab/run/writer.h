#ifndef PLANISH_LAB_RUN_WRITER_H_
#define PLANISH_LAB_RUN_WRITER_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/run/posix_file.h"
#include "lab/run/results.h"

namespace planish::lab {

/// Writes the files of one run (see results.h). While it lives, no other process, and no other
/// RunWriter, writes the same folder. Every function throws RunError with the system's reason when
/// a file cannot be written, and naming the key when a value is NaN or infinite, which JSON cannot
/// hold. Nothing is written once the folder or the file has been removed, moved or replaced: that
/// is a RunError, too. No file is written through a link.
class RunWriter {
 public:
  /// Creates `folder` where it is missing and takes its lock. Throws RunError when another process
  /// uses the run.
  explicit RunWriter(std::filesystem::path folder);

  /// Throws RunError when the folder has been removed, moved or replaced since the constructor.
  void CheckFolder() const;

  /// Replaces config.json.
  void WriteConfig(const RunConfig& config);

  /// Appends one line to metrics.jsonl, in one piece. It is then safe from the end of this process;
  /// Sync makes it safe from the loss of power.
  void Append(const Evaluation& evaluation);

  /// Brings metrics.jsonl to the disk. To be called before a checkpoint is written, which must not
  /// outlive the evaluations that led to it.
  void Sync();

  /// Keeps the evaluations with `step` or less, and removes result.json: the run goes on from
  /// there.
  void TruncateAfter(int64_t step);

  /// Writes result.json; the run has ended.
  void Finish(const RunResult& result);

  const std::filesystem::path& folder() const { return folder_; }

 private:
  void OpenMetrics();
  void CheckMetrics() const;

  std::filesystem::path folder_;
  FileDescriptor lock_;
  FileDescriptor metrics_;  // open from the first Append on
};

/// What sets the run `b` apart from the run `a`, a line each such as "batch_size: 128 instead of 4"
/// (b's value first): task, preset, every setting, seed, the data's name and sha256. Empty when
/// both decide the same run; stamps, metrics and the report's description do not count.
std::vector<std::string> ConfigDifferences(const RunConfig& a, const RunConfig& b);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_WRITER_H_
