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
/// In a folder the file is enwik8, else enwik8.gz, else the first by name of enwik8*.first*, with
/// or without .txt or .gz and without any other extension. Searches the folder and its subfolders
/// enwik8 and enwik8_prefix. `name` is "enwik8" for the whole set, identified by its checksum, and
/// otherwise the file's name.
///
/// Throws DataError if there is no such file or it is empty, and like FileContent.
Text ReadBytes(const std::filesystem::path& path, int64_t max_bytes);

/// Returns ReadBytes if there is a path, else MakeText of min(most, kMaxSyntheticText) characters.
Text OpenBytes(const std::optional<std::filesystem::path>& path, int64_t max_bytes);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ENWIK8_BYTES_H_
