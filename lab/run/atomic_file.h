#ifndef PLANISH_LAB_RUN_ATOMIC_FILE_H_
#define PLANISH_LAB_RUN_ATOMIC_FILE_H_

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace planish::lab {

/// Replaces the contents of `path` by the concatenated `pieces`. At any time and after any crash, a
/// reader finds the whole old file or the whole new one (docs/files.md#writing). Writers of one
/// path wait for each other. Replaces a symbolic link, without following it. Throws RunError with
/// the system's reason, or if `path` is a device, FIFO, socket or folder, and then removes the
/// temporary file.
void WriteFileAtomically(const std::filesystem::path& path,
                         std::span<const std::span<const std::byte>> pieces);

/// Like the above, for one text.
void WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

/// Writes `text` to a file named by the user. Follows symbolic links and replaces the file at their
/// end atomically. Writes into an existing device, FIFO or the process's own stdout or stderr
/// instead of replacing it. Throws RunError, and like OutputTarget.
void WriteOutputFile(const std::filesystem::path& path, std::string_view text);

/// Returns the file that an output to `path` replaces: the end of a chain of symbolic links, which
/// need not exist. Throws RunError for a loop. Throws UsageError for a file of a run: config.json,
/// and beside one metrics.jsonl, result.json, .lock, the events and the checkpoint.
std::filesystem::path OutputTarget(const std::filesystem::path& path);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_ATOMIC_FILE_H_
