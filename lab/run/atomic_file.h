#ifndef PLANISH_LAB_RUN_ATOMIC_FILE_H_
#define PLANISH_LAB_RUN_ATOMIC_FILE_H_

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace planish::lab {

/// Replaces the contents of `path` by `pieces`, one after the other, or leaves it as it was: a
/// reader, at any time and after any crash or loss of power, finds the whole old file or the whole
/// new one. The bytes go to the temporary ".NAME.tmp" in the same folder, which is flushed to the
/// disk and then renamed. A killed process leaves that temporary behind; the next write of the same
/// path reuses it. Writers of one path wait for each other. A symbolic link at `path` is replaced,
/// not followed; a device, FIFO, socket or folder there is an error.
/// Throws RunError with the system's reason (no space, no permission); the temporary is then gone.
void WriteFileAtomically(const std::filesystem::path& path,
                         std::span<const std::span<const std::byte>> pieces);

/// WriteFileAtomically of one piece of text.
void WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

/// Writes `text` to a file that the user has named. Follows symbolic links and replaces the file at
/// their end atomically. Writes into an existing device, FIFO or the process's own stdout or stderr
/// in place of replacing it. Throws RunError.
void WriteOutputFile(const std::filesystem::path& path, std::string_view text);

/// Returns the path at the end of the symbolic links that `path` names, which need not exist.
/// Throws RunError for a loop of links.
std::filesystem::path FollowLinks(const std::filesystem::path& path);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_ATOMIC_FILE_H_
