#ifndef PLANISH_LAB_TERMINAL_PRINTABLE_H_
#define PLANISH_LAB_TERMINAL_PRINTABLE_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace planish::lab {

/// Returns the length of the well-formed UTF-8 character at the front of `text`, 0 if there is
/// none. Accepts over-long forms and surrogates, which terminals replace themselves.
size_t CharacterLength(std::string_view text);

/// Returns true if the well-formed UTF-8 character is a control character of ASCII or Latin 1.
bool IsControl(std::string_view character);

/// Returns `text` with every control character and malformed UTF-8 byte as "\x1b", byte by byte, so
/// that names and data cannot control a terminal. Tabs and line ends stay where `keep_lines` is
/// set.
std::string Printable(std::string_view text, bool keep_lines = false);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TERMINAL_PRINTABLE_H_
