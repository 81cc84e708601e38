#ifndef PLANISH_LAB_TASKS_ENWIK8_BYTES_H_
#define PLANISH_LAB_TASKS_ENWIK8_BYTES_H_

#include <cstdint>
#include <filesystem>
#include <optional>

#include "lab/data/text.h"

namespace planish::lab {

/// Returns the first `most` bytes of any file, or all if it has fewer. A gzip file is unpacked; a
/// byte order mark stays, since bytes are what is asked for.
///
/// In a folder the file is enwik8, else enwik8.gz, else the first by name of enwik8*.first*, with
/// or without .txt or .gz and of other names without an ending; it is looked for in the folder, in
/// its enwik8 and in its enwik8_prefix. `name` is "enwik8" for the whole set, known by its
/// checksum, and otherwise the file's name.
///
/// Throws DataError if there is no such file or it is empty, and what FileContent throws.
Text ReadBytes(const std::filesystem::path& path, int64_t most);

/// ReadBytes where there is a path, else MakeText of min(most, kMaxSyntheticText) characters.
Text OpenBytes(const std::optional<std::filesystem::path>& path, int64_t most);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ENWIK8_BYTES_H_
