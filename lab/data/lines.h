#ifndef PLANISH_LAB_DATA_LINES_H_
#define PLANISH_LAB_DATA_LINES_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/data/file_content.h"

namespace planish::lab {

/// Maximum length of a text file's line in bytes. A longer one is refused.
inline constexpr int64_t kMaxLine = 16 << 20;

/// U+FEFF in UTF-8, which some programs write at the start of a text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// Returns up to four first bytes of a text file, without a byte order mark. `content` must be at
/// its start. Throws DataError for the mark of UTF-16 or UTF-32.
std::string ReadTextStart(const std::filesystem::path& file, FileContent& content);

/// Returns the content of a text file, plain or gzip, without a byte order mark. Leaves other bytes
/// that are not UTF-8 to the caller.
/// Throws DataError for UTF-16 and UTF-32, a zero byte, a line longer than kMaxLine, too little
/// memory, and like FileContent.
std::string ReadTextFile(const std::filesystem::path& file);

/// Throws DataError if `line`, line `number` of `file`, is not UTF-8.
void CheckUtf8(const std::filesystem::path& file, int64_t number, std::string_view line);

/// Returns the lines of ReadTextFile(file) without their ends ("\n" or "\r\n"; no other character
/// ends a line). Throws DataError with the number of a line that is not UTF-8.
std::vector<std::string> ReadLines(const std::filesystem::path& file);

/// Reads the next line of `in` into `line`, without its end and without a byte order mark at the
/// start of line 1. `number` is the line's number, from 1. Returns false if there is none. Throws
/// DataError naming `name` for a line longer than kMaxLine.
bool ReadLine(std::istream& in, const std::string& name, int64_t number, std::string& line);

/// Returns the lines of a text without their "\n". Bytes after the last "\n" are a line if there
/// are any.
std::vector<std::string_view> SplitLines(std::string_view text);

/// Returns the position of the first byte of `text` that is not part of a well-formed UTF-8
/// sequence (Utf8SequenceLength), or nullopt.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

/// Returns true if `text` contains only blanks: spaces, tabs, and the no-break space U+00A0.
bool IsBlank(std::string_view text);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_LINES_H_
