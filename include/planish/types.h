#ifndef PLANISH_TYPES_H_
#define PLANISH_TYPES_H_

#include <bit>
#include <cstdint>
#include <type_traits>

namespace planish {

/// A number of 16 bits: the upper half of a float (8 bits of exponent, 7 of fraction). Arrays of
/// it have the layout of every other bfloat16, PyTorch's among them.
struct bfloat16 {  // NOLINT(readability-identifier-naming): named as a built-in type would be
  uint16_t bits;
  friend bool operator==(const bfloat16&, const bfloat16&) = default;  ///< of the bits
};

/// A number of 16 bits: IEEE 754 binary16 (5 bits of exponent, 10 of fraction), at most 65504.
struct float16 {  // NOLINT(readability-identifier-naming)
  uint16_t bits;
  friend bool operator==(const float16&, const float16&) = default;  ///< of the bits
};

/// The type that numbers of type T are computed with and whose moments are saved: double for
/// double, float for all others.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// The value, exactly.
inline float ToFloat(bfloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

/// The value, exactly.
inline float ToFloat(float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  uint32_t rest = static_cast<uint32_t>(value.bits & 0x7fff) << 13;
  if (rest >= 0x7c00u << 13) {
    rest += (255u - 31) << 23;  // an infinity or NaN
  } else if (rest >= 1u << 23) {
    rest += (127u - 15) << 23;
  } else {  // zero or subnormal: rest counts units of 2^-24, shifted by 13
    rest = std::bit_cast<uint32_t>(static_cast<float>(value.bits & 0x7fff) * 0x1p-24f);
  }
  return std::bit_cast<float>(sign | rest);
}

/// The nearest bfloat16, of two equally near the even one.
inline bfloat16 ToBfloat16(float value) {
  if (value != value) return {0x7fc0};
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

/// The nearest float16, of two equally near the even one; infinity from 65520 on.
inline float16 ToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t rest = bits & 0x7fffffff;
  uint32_t half = 0;
  if (rest > 0x7f800000) {
    half = 0x7e00;
  } else if (rest >= 0x477ff000) {  // 65520
    half = 0x7c00;
  } else if (rest < 0x38800000) {  // 2^-14: adding 1/2 rounds to units of 2^-24
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000;
  } else {
    half = (rest - ((127u - 15) << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
  }
  return {static_cast<uint16_t>(sign | half)};
}

}  // namespace planish

#endif  // PLANISH_TYPES_H_
