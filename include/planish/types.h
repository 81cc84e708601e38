#ifndef PLANISH_TYPES_H_
#define PLANISH_TYPES_H_

#include <bit>
#include <cstdint>
#include <type_traits>

#include "planish/version.h"

// Element types of arrays. The functions have no state and do not throw.
//
// Example:
//   const planish::bfloat16 third = planish::ToBfloat16(1.f / 3);
//   std::printf("%.6f", planish::ToFloat(third));
//   // prints 0.333984
namespace planish {
inline namespace PLANISH_API {

/// 16-bit floating-point type: the upper half of a float (8 exponent bits, 7 fraction bits). Arrays
/// have the layout of PyTorch's bfloat16.
struct bfloat16 {
  uint16_t bits;
  friend bool operator==(const bfloat16&, const bfloat16&) = default;  ///< compares bits
};

/// 16-bit floating-point type: IEEE 754 binary16 (5 exponent bits, 10 fraction bits), at most
/// 65504.
struct float16 {
  uint16_t bits;
  friend bool operator==(const float16&, const float16&) = default;  ///< compares bits
};

/// Type of the arithmetic on elements of type T, and of saved statistics: double for double, else
/// float.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Storage type of packed weights.
enum class WeightType : uint8_t {
  kFull,      ///< the type of the layer's elements
  kBfloat16,  ///< float weights, each rounded to the nearest bfloat16
  /// Float weights, each rounded to a multiple in [-127, 127] of its row's scale, the row's largest
  /// magnitude / 127. The scales are floats. A row with an infinity or NaN becomes NaN.
  kInt8,
};

/// Returns the value of a bfloat16, exactly.
inline float ToFloat(bfloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

/// Returns the value of a float16, exactly.
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

/// Rounds to the nearest bfloat16, ties to even. NaN becomes 0x7fc0.
inline bfloat16 ToBfloat16(float value) {
  if (value != value) return {0x7fc0};
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

/// Rounds to the nearest float16, ties to even. Values from 65520 on become infinity.
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

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_TYPES_H_
