#include "lab/base/lower_case.h"

#include <gtest/gtest.h>

namespace planish::lab {
namespace {

TEST(LowerCase, ChangesOnlyAsciiLetters) {
  EXPECT_EQ(LowerCase(""), "");
  EXPECT_EQ(LowerCase("AZ@[`{az09.PNG"), "az@[`{az09.png");
  EXPECT_EQ(LowerCase("\xc3\x89\xff"), "\xc3\x89\xff");
}

}  // namespace
}  // namespace planish::lab
