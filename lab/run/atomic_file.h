#ifndef PLANISH_LAB_RUN_ATOMIC_FILE_H_
#define PLANISH_LAB_RUN_ATOMIC_FILE_H_

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace planish::lab {

/// Makes `path` hold exactly `pieces`, one after the other, or leaves it as it was: whoever opens
/// the path, at any time and after any crash or loss of power, finds the whole old file or the
/// whole new one. The bytes go to the temporary ".NAME.tmp" in the same folder, which is brought to
/// the disk and then renamed. A process that is killed meanwhile leaves that temporary behind; the
/// next write of the same path overwrites it, so there is never more than one. Writers of one path
/// wait for each other.
/// Throws RunError with the system's reason (no space, no permission); the temporary is then gone.
void WriteFileAtomically(const std::filesystem::path& path,
                         std::span<const std::span<const std::byte>> pieces);

/// The same for one piece of text.
void WriteFileAtomically(const std::filesystem::path& path, std::string_view text);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_ATOMIC_FILE_H_
