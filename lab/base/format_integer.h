#ifndef PLANISH_LAB_BASE_FORMAT_INTEGER_H_
#define PLANISH_LAB_BASE_FORMAT_INTEGER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace planish::lab {

/// Returns 1234567 as "1,234,567". (fmt::group_digits of fmt 9 prints negative numbers as
/// unsigned.)
inline std::string FormatInteger(int64_t value) {
  const std::string digits = std::to_string(value);
  const size_t first_digit = value < 0;
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first_digit && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

/// Returns "1 seed" or "1,200 seeds".
inline std::string Count(int64_t count, std::string_view noun) {
  return FormatInteger(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_BASE_FORMAT_INTEGER_H_
