#include "lab/data/lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/error.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

using namespace std::string_view_literals;

struct ByteOrderMark {
  std::string_view bytes;
  const char* encoding;
};

// UTF-32's little-endian mark begins with UTF-16's.
constexpr ByteOrderMark kRefusedMarks[] = {{"\xff\xfe\0\0"sv, "UTF-32"},
                                           {"\0\0\xfe\xff"sv, "UTF-32"},
                                           {"\xff\xfe"sv, "UTF-16"},
                                           {"\xfe\xff"sv, "UTF-16"}};

std::string TooLong(int64_t number) {
  return fmt::format("line {} is longer than {} bytes", number, FormatInteger(kMaxLine));
}

// Throws DataError if `bytes`, line `number` of `file` or part of it, cannot be text.
void CheckLine(const fs::path& file, std::string_view bytes, int64_t number) {
  if (std::ssize(bytes) > kMaxLine) FailToRead(file, TooLong(number));
  if (const size_t zero = bytes.find('\0'); zero != bytes.npos) {
    FailToRead(file, fmt::format("it has a zero byte on line {}: it is not text, or not in UTF-8",
                                 number));
  }
}

}  // namespace

std::string ReadTextStart(const fs::path& file, FileContent& content) {
  std::string start = content.Rest(4);
  for (const auto& [bytes, encoding] : kRefusedMarks) {
    if (start.starts_with(bytes)) {
      FailToRead(
          file,
          fmt::format("it is in {0}: convert it to UTF-8 first (iconv -f {0} -t UTF-8)", encoding));
    }
  }
  if (start.starts_with(kByteOrderMark)) start.erase(0, kByteOrderMark.size());
  return start;
}

std::string ReadTextFile(const fs::path& file) {
  return ReadInMemory(file, [&] {
    constexpr int64_t kPiece = 1 << 20;
    FileContent content(file);
    std::string text = ReadTextStart(file, content);
    if (!content.is_packed()) text.reserve(static_cast<size_t>(content.UpperBound()) + 1);
    int64_t number = 1;
    size_t begin = 0;  // of the last line
    while (true) {
      // Checks each line while reading, so a file without lines is refused early.
      for (size_t end = text.find('\n', begin); end != text.npos; end = text.find('\n', begin)) {
        CheckLine(file, std::string_view(text).substr(begin, end - begin), number);
        ++number;
        begin = end + 1;
      }
      CheckLine(file, std::string_view(text).substr(begin), number);
      const std::string piece = content.Rest(kPiece);
      if (piece.empty()) return text;
      text += piece;
    }
  });
}

bool ReadLine(std::istream& in, const std::string& name, int64_t number, std::string& line) {
  line.clear();
  if (!in.good()) return false;
  while (true) {
    const int c = in.rdbuf()->sbumpc();
    if (c == std::char_traits<char>::eof()) {
      // std::cin reports a failed read, for example of a folder, as the end.
      if (in.rdbuf() == std::cin.rdbuf() && std::ferror(stdin) != 0) {
        FailToRead(name, SystemReason(errno));
      }
      in.setstate(std::ios::eofbit);  // at a terminal another read would wait for more
      if (line.empty()) return false;
      break;
    }
    if (c == '\n') break;
    if (std::ssize(line) == kMaxLine) FailToRead(name, TooLong(number));
    line += static_cast<char>(c);
  }
  if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

void CheckUtf8(const fs::path& file, int64_t number, std::string_view line) {
  if (const auto at = FindInvalidUtf8(line)) {
    FailAtLine(file, number,
               fmt::format("byte 0x{:02x} at column {} is not UTF-8",
                           static_cast<uint8_t>(line[*at]), *at + 1));
  }
}

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::optional<size_t> FindInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = Utf8SequenceLength(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

bool IsBlank(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' || text[i] == '\t') continue;
    if (text.substr(i, 2) != "\u00a0") return false;
    ++i;
  }
  return true;
}

std::vector<std::string> ReadLines(const fs::path& file) {
  return ReadInMemory(file, [&] {
    const std::string text = ReadTextFile(file);
    std::vector<std::string> lines;
    for (std::string_view line : SplitLines(text)) {
      if (line.ends_with('\r')) line.remove_suffix(1);
      CheckUtf8(file, std::ssize(lines) + 1, line);
      lines.emplace_back(line);
    }
    return lines;
  });
}

}  // namespace planish::lab
