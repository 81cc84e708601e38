#ifndef PLANISH_LAB_TERMINAL_LAYOUT_H_
#define PLANISH_LAB_TERMINAL_LAYOUT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

// Layout of text for a terminal. Texts are UTF-8, and a code point is one column.
namespace planish::lab {

struct TableOptions {
  int width = 80;       ///< columns of the terminal
  bool colour = false;  ///< enables ANSI escapes for headings and verdicts
};

/// Returns the number of columns of a text.
size_t Width(std::string_view text);

/// Returns the first `width` columns of a text, with an ellipsis as the last if it is longer.
std::string Cut(const std::string& text, size_t width);

/// Returns the text in the style of an ANSI escape, such as "1" for bold, if `colour`.
std::string Painted(const std::string& text, std::string_view escape, bool colour);

/// Wraps words into lines of at most `width` columns, all but the first indented.
std::string Wrapped(const std::string& text, size_t width, const std::string& indent);

/// Returns rows of as many cells each, the first of which is the head. Aligns the first column left
/// and the others right, two spaces apart. Cuts the first column if the table is wider than the
/// terminal.
std::string Aligned(std::vector<std::vector<std::string>> rows, const TableOptions& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TERMINAL_LAYOUT_H_
