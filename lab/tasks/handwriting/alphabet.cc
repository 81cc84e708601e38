#include "lab/tasks/handwriting/alphabet.h"

#include <cstdint>

namespace planish::lab {

std::vector<std::string_view> CharactersOf(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + 1;
    while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) ++end;
    characters.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return characters;
}

Alphabet::Alphabet(bool digits)
    : characters_(" ,.'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
  if (digits) characters_ += "0123456789";
}

std::vector<int64_t> Alphabet::Encode(std::string_view text) const {
  std::vector<int64_t> symbols;
  for (const std::string_view character : CharactersOf(text)) {
    const size_t found = characters_.find(character[0]);
    symbols.push_back(found == std::string::npos ? kOther : static_cast<int64_t>(found) + 1);
  }
  return symbols;
}

}  // namespace planish::lab
