#include "lab/terminal/layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace planish::lab {

size_t Width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string Cut(const std::string& text, size_t width) {
  if (Width(text) <= width) return text;
  std::string cut;
  size_t columns = 0;
  for (const char c : text) {
    const bool starts = (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    if (starts && ++columns >= width) break;
    cut += c;
  }
  return cut + "…";
}

std::string Painted(const std::string& text, std::string_view escape, bool colour) {
  return colour ? fmt::format("\x1b[{}m{}\x1b[0m", escape, text) : text;
}

std::string Wrapped(const std::string& text, size_t width, const std::string& indent) {
  std::string lines;
  std::string line;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!line.empty() && Width(line) + 1 + Width(word) > width) {
      lines += line + "\n";
      line = indent + word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
    begin = end + 1;
  }
  return lines + line + "\n";
}

std::string Aligned(std::vector<std::vector<std::string>> rows, const TableOptions& options) {
  std::vector<size_t> widths(rows[0].size());
  for (const std::vector<std::string>& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  size_t total = 0;
  for (const size_t width : widths) total += width + 2;
  const auto limit = static_cast<size_t>(std::max(options.width, 20));
  if (total > limit)
    widths[0] = std::max<size_t>(8, widths[0] - std::min(widths[0], total - limit));
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    rows[r][0] = Cut(rows[r][0], widths[0]);
    std::string line = "  " + rows[r][0] + std::string(widths[0] - Width(rows[r][0]), ' ');
    for (size_t i = 1; i < rows[r].size(); ++i) {
      line += "  " + std::string(widths[i] - Width(rows[r][i]), ' ') + rows[r][i];
    }
    text += (r == 0 ? Painted(line, "2", options.colour) : line) + "\n";
  }
  return text;
}

}  // namespace planish::lab
