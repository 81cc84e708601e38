#include "lab/tasks/handwriting/alphabet.h"

#include <fmt/format.h>

namespace planish::lab {

Alphabet::Alphabet(bool digits)
    : characters_(" ,.'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
  if (digits) characters_ += "0123456789";
}

std::vector<int64_t> Alphabet::Encode(std::string_view text) const {
  std::vector<int64_t> symbols;
  for (const char byte : text) {
    const bool continues = (static_cast<uint8_t>(byte) & 0xc0) == 0x80;  // a character of UTF-8
    if (continues) continue;
    const size_t found = characters_.find(byte);
    symbols.push_back(found == std::string::npos ? kOther : static_cast<int64_t>(found) + 1);
  }
  return symbols;
}

std::string Alphabet::Name(int64_t symbol) const {
  if (symbol == kOther) return "others";
  return fmt::format("\"{}\"", characters_.at(static_cast<size_t>(symbol - 1)));
}

}  // namespace planish::lab
