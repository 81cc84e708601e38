// Vectors of bfloat16 and float16 on every SIMD target against planish/types.h, through calls that
// only convert.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "planish/norm.h"
#include "src/norm/testing.h"

namespace planish {
namespace {

using tests::IsNan;

template <class Half>
class HalfVectorTest : public ::testing::Test {};
using Halves = ::testing::Types<bfloat16, float16>;
TYPED_TEST_SUITE(HalfVectorTest, Halves);

template <class Half>
std::vector<Half> All() {
  std::vector<Half> all;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) all.push_back({static_cast<uint16_t>(bits)});
  return all;
}

// sum = x + residual for every x reads and rounds each value.
TYPED_TEST(HalfVectorTest, ReadsEveryValue) {
  using T = TypeParam;
  const std::vector<T> x = All<T>();
  tests::ForEachTarget([&](const std::string& target) {
    for (const float addend : {0.f, 1.f, -3.5f, 0x1p-14f, 0x1p-20f, 1000.f, -60000.f}) {
      const T one = tests::FromDouble<T>(static_cast<double>(addend));
      const std::vector<T> residual(x.size(), one);
      std::vector<T> sum(x.size()), y(x.size());
      for (const int64_t cols : {1 << 16, 1 << 8, 1 << 3}) {
        NormForward<T>(Norm::kLayerSimple, {.rows = (1 << 16) / cols,
                                            .cols = cols,
                                            .x = x.data(),
                                            .y = y.data(),
                                            .residual = residual.data(),
                                            .sum = sum.data()});
        for (size_t i = 0; i < x.size(); ++i) {
          const T expected =
              tests::FromDouble<T>(static_cast<double>(ToFloat(x[i]) + ToFloat(one)));
          if (IsNan(expected)) {
            ASSERT_TRUE(IsNan(sum[i])) << i << " on " << target;
          } else {
            ASSERT_EQ(sum[i].bits, expected.bits) << i << " + " << addend << " on " << target;
          }
        }
      }
    }
  });
}

// A row of alternating 1 and -1 equals its xhat, so y is gain up to sign. Rounds every float
// half-way between two halves, and its neighbors.
TYPED_TEST(HalfVectorTest, RoundsEveryMiddle) {
  using T = TypeParam;
  std::vector<float> gain = {0.f, 1e-45f, 3e38f, INFINITY};
  for (uint32_t bits = 0;; ++bits) {
    const float low = ToFloat(T{static_cast<uint16_t>(bits)});
    const float high = ToFloat(T{static_cast<uint16_t>(bits + 1)});
    if (std::isinf(high)) {  // larger values round to infinity
      const float step = low - ToFloat(T{static_cast<uint16_t>(bits - 1)});
      for (const float middle : {low + step / 2, std::nextafter(low + step / 2, 0.f)}) {
        gain.push_back(middle);
      }
      break;
    }
    const float middle = low + (high - low) / 2;
    gain.push_back(middle);
    gain.push_back(std::nextafter(middle, 0.f));
    gain.push_back(std::nextafter(middle, INFINITY));
  }
  if (gain.size() % 2) gain.push_back(1);
  std::vector<T> x, y(gain.size());
  for (size_t c = 0; c < gain.size(); ++c) x.push_back(tests::FromDouble<T>(c % 2 ? -1 : 1));
  tests::ForEachTarget([&](const std::string& target) {
    NormForward<T, float>(Norm::kLayer,
                          {.rows = 1,
                           .cols = static_cast<int64_t>(gain.size()),
                           .x = x.data(),
                           .gain = gain.data(),
                           .y = y.data()},
                          {.eps = 0});
    for (size_t c = 0; c < gain.size(); ++c) {
      const float value = c % 2 ? -gain[c] : gain[c];
      const T expected = tests::FromDouble<T>(static_cast<double>(value));
      if (value == 0) {  // a sum with bias 0 loses the sign
        ASSERT_EQ(ToFloat(y[c]), 0) << target;
      } else {
        ASSERT_EQ(y[c].bits, expected.bits) << value << " at " << c << " on " << target;
      }
    }
  });
}

}  // namespace
}  // namespace planish
