#include "lab/base/format_integer.h"

#include <gtest/gtest.h>

#include <limits>

namespace planish::lab {
namespace {

TEST(FormatInteger, CommaBeforeEveryThirdDigit) {
  EXPECT_EQ(FormatInteger(0), "0");
  EXPECT_EQ(FormatInteger(999), "999");
  EXPECT_EQ(FormatInteger(1000), "1,000");
  EXPECT_EQ(FormatInteger(60000), "60,000");
  EXPECT_EQ(FormatInteger(123456), "123,456");
  EXPECT_EQ(FormatInteger(1234567), "1,234,567");
  EXPECT_EQ(FormatInteger(-123), "-123");
  EXPECT_EQ(FormatInteger(-1234), "-1,234");
  EXPECT_EQ(FormatInteger(-123456), "-123,456");
  EXPECT_EQ(FormatInteger(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Count, AddsTheNoun) {
  EXPECT_EQ(Count(1, "seed"), "1 seed");
  EXPECT_EQ(Count(0, "seed"), "0 seeds");
  EXPECT_EQ(Count(1200, "empty line"), "1,200 empty lines");
}

}  // namespace
}  // namespace planish::lab
