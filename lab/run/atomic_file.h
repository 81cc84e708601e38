#ifndef PLANISH_LAB_RUN_ATOMIC_FILE_H_
#define PLANISH_LAB_RUN_ATOMIC_FILE_H_

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace planish::lab {

/// Replaces the contents of `path` by the concatenated `pieces`, or leaves it unchanged. At any
/// time and after any crash, a reader finds the whole old file or the whole new one.
/// - The bytes go to ".NAME.tmp" in the same folder, which is flushed to disk and then renamed. A
///   killed process leaves that file; the next write of the same path reuses it.
/// - Writers of one path wait for each other.
/// - A symbolic link at `path` is replaced, not followed; a device, FIFO, socket or folder there is
///   an error.
///
/// Throws RunError with the system's reason (no space, no permission) and removes the temporary
/// file.
void WriteFileAtomically(const std::filesystem::path& path,
                         std::span<const std::span<const std::byte>> pieces);

/// Like the above, for one text.
void WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

/// Writes `text` to a file named by the user. Follows symbolic links and replaces the file at their
/// end atomically. Writes into an existing device, FIFO or the process's own stdout or stderr
/// instead of replacing it. Throws RunError.
void WriteOutputFile(const std::filesystem::path& path, std::string_view text);

/// Returns the end of a chain of symbolic links from `path`; it need not exist. Throws RunError for
/// a loop.
std::filesystem::path FollowLinks(const std::filesystem::path& path);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_ATOMIC_FILE_H_
