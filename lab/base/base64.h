#ifndef PLANISH_LAB_BASE_BASE64_H_
#define PLANISH_LAB_BASE_BASE64_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace planish::lab {

/// Returns `bytes` in base 64 (RFC 4648, section 4), padded: "M", "Ma" and "Man" as "TQ==", "TWE="
/// and "TWFu".
inline std::string Base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j) {
      word = word << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += i + j <= bytes.size() ? kDigits[word >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_BASE_BASE64_H_
