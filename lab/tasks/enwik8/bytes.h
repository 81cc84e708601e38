#ifndef PLANISH_LAB_TASKS_ENWIK8_BYTES_H_
#define PLANISH_LAB_TASKS_ENWIK8_BYTES_H_

#include <cstdint>
#include <filesystem>
#include <optional>

#include "lab/data/text.h"

namespace planish::lab {

/// Returns the first `max_bytes` bytes of a file, unpacked, or all if it has fewer. Keeps a byte
/// order mark, because the data is bytes. docs/data.md lists the names that are searched in a
/// folder. `name` is "enwik8" for the whole set, identified by its checksum, else the file's name.
/// Throws DataError if there is no such file or it is empty, and like FileContent.
Text ReadBytes(const std::filesystem::path& path, int64_t max_bytes);

/// Returns ReadBytes if there is a path, else MakeText of min(most, kMaxSyntheticText) characters.
Text OpenBytes(const std::optional<std::filesystem::path>& path, int64_t max_bytes);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ENWIK8_BYTES_H_
