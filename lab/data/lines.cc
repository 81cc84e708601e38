#include "lab/data/lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "lab/data/file_content.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void Fail(const fs::path& file, const std::string& must, const std::string& has) {
  throw DataError(fmt::format("[ReadLines] {} must {} but has {}", file.string(), must, has));
}

// The length of the well-formed sequence that `text` begins with, 0 where it is none: table 3-7 of
// the Unicode standard.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto within = [&](size_t i, int low, int high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return within(1, 0x80, 0xbf) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const int low = first == 0xe0 ? 0xa0 : 0x80, high = first == 0xed ? 0x9f : 0xbf;
    return within(1, low, high) && within(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const int low = first == 0xf0 ? 0x90 : 0x80, high = first == 0xf4 ? 0x8f : 0xbf;
    return within(1, low, high) && within(2, 0x80, 0xbf) && within(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

}  // namespace

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
    const size_t length = SequenceLength(text.substr(i));
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
  const std::string text = FileContent(file, "ReadLines").Rest();
  std::vector<std::string> lines;
  for (std::string_view line : SplitLines(text)) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const auto at = FindInvalidUtf8(line)) {
      Fail(file, "be UTF-8",
           fmt::format("byte 0x{:02x} at column {} of line {}", static_cast<uint8_t>(line[*at]),
                       *at + 1, lines.size() + 1));
    }
    lines.emplace_back(line);
  }
  return lines;
}

}  // namespace planish::lab
