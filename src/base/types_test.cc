#include "planish/types.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace planish {
namespace {

// Returns the value of `bits` in a format with `exponent` and `fraction` bits, by its definition.
double Decode(uint32_t bits, int exponent, int fraction) {
  const int bias = (1 << (exponent - 1)) - 1;
  const double sign = bits >> (exponent + fraction) & 1 ? -1 : 1;
  const int e = static_cast<int>(bits >> fraction) & ((1 << exponent) - 1);
  const auto f = static_cast<double>(bits & ((1u << fraction) - 1));
  if (e == (1 << exponent) - 1) {
    return f == 0 ? sign * INFINITY : std::numeric_limits<double>::quiet_NaN();
  }
  const double of_one = std::ldexp(f, -fraction);
  return e == 0 ? sign * std::ldexp(of_one, 1 - bias) : sign * std::ldexp(1 + of_one, e - bias);
}

template <class Half>
struct Format;
template <>
struct Format<bfloat16> {
  static constexpr int kExponent = 8, kFraction = 7;
  static bfloat16 From(float value) { return ToBfloat16(value); }
};
template <>
struct Format<float16> {
  static constexpr int kExponent = 5, kFraction = 10;
  static float16 From(float value) { return ToFloat16(value); }
};

template <class Half>
double Value(uint32_t bits) {
  return Decode(bits, Format<Half>::kExponent, Format<Half>::kFraction);
}

template <class Half>
class HalfTest : public ::testing::Test {};
using Halves = ::testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(HalfTest, Halves);

TYPED_TEST(HalfTest, EveryValueAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const TypeParam half{static_cast<uint16_t>(bits)};
    const float value = ToFloat(half);
    const double expected = Value<TypeParam>(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(ToFloat(Format<TypeParam>::From(value)))) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), expected) << bits;
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << bits;
      ASSERT_EQ(Format<TypeParam>::From(value), half) << bits;
    }
  }
}

// Tests floats between neighboring halves: just below the middle, the middle, just above. The upper
// neighbor of the largest half is the next value of the format without its exponent limit, from
// which on results are infinite.
TYPED_TEST(HalfTest, RoundsToNearestEven) {
  const uint32_t sign = 0x8000;
  const uint32_t infinity = ((1u << Format<TypeParam>::kExponent) - 1)
                            << Format<TypeParam>::kFraction;
  for (uint32_t bits = 0; bits < infinity; ++bits) {
    const double low = Value<TypeParam>(bits);
    const double next =
        bits + 1 < infinity ? Value<TypeParam>(bits + 1) : low + (low - Value<TypeParam>(bits - 1));
    const auto middle = static_cast<float>(low + (next - low) / 2);
    ASSERT_EQ(static_cast<double>(middle), low + (next - low) / 2);  // exact in float
    const auto round = [](float value) { return uint32_t{Format<TypeParam>::From(value).bits}; };
    ASSERT_EQ(round(std::nextafter(middle, 0.f)), bits);
    ASSERT_EQ(round(std::nextafter(middle, INFINITY)), bits + 1);
    ASSERT_EQ(round(middle), bits + bits % 2);
    ASSERT_EQ(round(-middle), sign | (bits + bits % 2));
    ASSERT_EQ(round(-std::nextafter(middle, 0.f)), sign | bits);
  }
}

TYPED_TEST(HalfTest, Extremes) {
  const auto round = [](float value) { return ToFloat(Format<TypeParam>::From(value)); };
  EXPECT_EQ(round(INFINITY), INFINITY);
  EXPECT_EQ(round(-INFINITY), -INFINITY);
  EXPECT_EQ(round(std::numeric_limits<float>::max()), INFINITY);
  EXPECT_EQ(round(1e-45f), 0);
  EXPECT_TRUE(std::signbit(round(-1e-45f)));
  EXPECT_TRUE(std::isnan(round(NAN)));
  // A NaN whose upper 16 bits have an empty fraction stays NaN.
  EXPECT_TRUE(std::isnan(round(std::bit_cast<float>(0x7f800001u))));
  EXPECT_TRUE(std::isnan(round(std::bit_cast<float>(0xffffffffu))));
}

TEST(TypesTest, Layout) {
  static_assert(sizeof(bfloat16) == 2 && alignof(bfloat16) == 2);
  static_assert(sizeof(float16) == 2 && alignof(float16) == 2);
  static_assert(std::is_same_v<Compute<double>, double>);
  static_assert(std::is_same_v<Compute<float>, float>);
  static_assert(std::is_same_v<Compute<bfloat16>, float>);
  static_assert(std::is_same_v<Compute<float16>, float>);
  EXPECT_EQ(ToBfloat16(1).bits, 0x3f80);
  EXPECT_EQ(ToFloat16(1).bits, 0x3c00);
  EXPECT_EQ(ToFloat16(65504).bits, 0x7bff);
}

}  // namespace
}  // namespace planish
