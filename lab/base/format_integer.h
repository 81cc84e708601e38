#ifndef PLANISH_LAB_BASE_FORMAT_INTEGER_H_
#define PLANISH_LAB_BASE_FORMAT_INTEGER_H_

#include <cstddef>
#include <cstdint>
#include <string>

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

}  // namespace planish::lab

#endif  // PLANISH_LAB_BASE_FORMAT_INTEGER_H_
