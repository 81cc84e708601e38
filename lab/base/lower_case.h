#ifndef PLANISH_LAB_BASE_LOWER_CASE_H_
#define PLANISH_LAB_BASE_LOWER_CASE_H_

#include <string>
#include <string_view>

namespace planish::lab {

/// Returns `text` with the ASCII letters A to Z as a to z. Other bytes are kept, in every locale.
inline std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_BASE_LOWER_CASE_H_
