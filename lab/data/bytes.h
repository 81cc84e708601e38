#ifndef PLANISH_LAB_DATA_BYTES_H_
#define PLANISH_LAB_DATA_BYTES_H_

#include <cstdint>
#include <filesystem>
#include <optional>

#include "lab/data/text.h"

namespace planish::lab {

/// The first `most` bytes of any file, or all where it has fewer; a gzip stream, whatever its name,
/// is unpacked. Of a folder it is the file whose name begins with enwik8, in it, or in its enwik8
/// or enwik8_prefix: enwik8 or enwik8.gz where there is one, else the first by name. What is read
/// of such a file is called "enwik8" when it is the whole set of 100,000,000 bytes, and "enwik8
/// prefix" when it is less. Throws DataError when there is no such file, or it is empty, damaged or
/// cannot be read.
Text ReadBytes(const std::filesystem::path& path, int64_t most);

/// ReadBytes where there is a path, else MakeText of min(most, kMaxMadeText) characters.
Text OpenBytes(const std::optional<std::filesystem::path>& path, int64_t most);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_BYTES_H_
