#ifndef PLANISH_LAB_DATA_LINES_H_
#define PLANISH_LAB_DATA_LINES_H_

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace planish::lab {

/// The lines of a UTF-8 text file, plain or gzip whatever its name, without their ends ("\n" or
/// "\r\n"; no other character ends a line). Throws DataError when the file cannot be read or
/// unpacked, and where a line is not UTF-8, with its number.
std::vector<std::string> ReadLines(const std::filesystem::path& file);

/// The lines of a text, each without its "\n". What follows the last "\n" is a line if it has a
/// byte.
std::vector<std::string_view> SplitLines(std::string_view text);

/// The first byte of `text` that is not part of a well-formed UTF-8 sequence (RFC 3629: no overlong
/// forms, no surrogates, nothing above U+10FFFF); nothing where all of it is UTF-8.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

/// Whether `text` has nothing but blanks: spaces, tabs, and the no-break space U+00A0.
bool IsBlank(std::string_view text);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_LINES_H_
