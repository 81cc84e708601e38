#ifndef PLANISH_LAB_TASKS_ENWIK8_BYTES_H_
#define PLANISH_LAB_TASKS_ENWIK8_BYTES_H_

#include <cstdint>
#include <filesystem>
#include <optional>

#include "lab/data/text.h"

namespace planish::lab {

/// Returns the first `max_bytes` bytes of any file, or all if it has fewer. Unpacks gzip; keeps a
/// byte order mark, because the data is bytes.
///
/// Searches a folder and its subfolders enwik8 and enwik8_prefix for enwik8, enwik8.gz, or the
/// first by name of enwik8*.first*. Other extensions than .txt and .gz are excluded. `name` is
/// "enwik8" for the whole set, identified by its checksum, and otherwise the file's name.
///
/// Throws DataError if there is no such file or it is empty, and like FileContent.
Text ReadBytes(const std::filesystem::path& path, int64_t max_bytes);

/// Returns ReadBytes if there is a path, else MakeText of min(most, kMaxSyntheticText) characters.
Text OpenBytes(const std::optional<std::filesystem::path>& path, int64_t max_bytes);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ENWIK8_BYTES_H_
