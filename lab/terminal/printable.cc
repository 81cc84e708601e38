#include "lab/terminal/printable.h"

#include <fmt/format.h>

#include <algorithm>

namespace planish::lab {

size_t CharacterLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) < 0x80             ? 1
                        : (byte(0) & 0xe0) == 0xc0 ? 2
                        : (byte(0) & 0xf0) == 0xe0 ? 3
                        : (byte(0) & 0xf8) == 0xf0 ? 4
                                                   : 0;
  if (length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

bool IsControl(std::string_view character) {
  const auto byte = static_cast<unsigned char>(character[0]);
  return byte < 0x20 || byte == 0x7f ||
         (byte == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0);  // U+0080 to U+009F
}

std::string Printable(std::string_view text, bool keep_lines) {
  std::string printable;
  while (!text.empty()) {
    const size_t length = CharacterLength(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    const bool kept = keep_lines && (character == "\n" || character == "\t");
    if (kept || (length > 0 && !IsControl(character))) {
      printable += character;
    } else {
      for (const char byte : character) {
        printable += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
      }
    }
    text.remove_prefix(character.size());
  }
  return printable;
}

}  // namespace planish::lab
