#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>

#include "src/base/aligned.h"

namespace planish {
namespace {

/// Reads an element that the compiler knows to be uninitialized.
template <class T>
T Read(const volatile T* element) {
  return *element;
}

TEST(NanMemoryTest, NewMemoryIsNan) {
  const auto elements = internal::MakeUninitialized<double>(9);
  const auto aligned = internal::MakeAligned<float>(9);
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(std::isnan(Read(&elements[i]))) << i;
    EXPECT_TRUE(std::isnan(Read(&aligned[i]))) << i;
  }
}

}  // namespace
}  // namespace planish
