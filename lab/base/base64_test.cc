#include "lab/base/base64.h"

#include <gtest/gtest.h>

namespace planish::lab {
namespace {

// The test vectors of RFC 4648, section 10.
TEST(Base64, AgreesWithTheStandard) {
  EXPECT_EQ(Base64(""), "");
  EXPECT_EQ(Base64("f"), "Zg==");
  EXPECT_EQ(Base64("fo"), "Zm8=");
  EXPECT_EQ(Base64("foo"), "Zm9v");
  EXPECT_EQ(Base64("foob"), "Zm9vYg==");
  EXPECT_EQ(Base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(Base64("foobar"), "Zm9vYmFy");
}

TEST(Base64, TakesEveryByte) {
  EXPECT_EQ(Base64(std::string_view("\0", 1)), "AA==");
  EXPECT_EQ(Base64("\xFB\xFF\xFE"), "+//+");
  EXPECT_EQ(Base64("\xFF\xFF"), "//8=");
}

}  // namespace
}  // namespace planish::lab
