#include "lab/terminal/printable.h"

#include <gtest/gtest.h>

namespace planish::lab {
namespace {

TEST(Printable, KeepsText) { EXPECT_EQ(Printable("a \u00e9 \u6587"), "a \u00e9 \u6587"); }

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(Printable("\x1b[31mred\x7f"), "\\x1b[31mred\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\xc2\\x9b");  // U+009B, the one-character form of ESC [
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Printable, EscapesMalformedBytes) { EXPECT_EQ(Printable("a\xff\xc3"), "a\\xff\\xc3"); }

TEST(Printable, KeepsLinesWhereAsked) {
  EXPECT_EQ(Printable("a\tb\n"), "a\\x09b\\x0a");
  EXPECT_EQ(Printable("a\tb\n\r", /*keep_lines=*/true), "a\tb\n\\x0d");
}

}  // namespace
}  // namespace planish::lab
