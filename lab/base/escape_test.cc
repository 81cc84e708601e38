#include "lab/base/escape.h"

#include <gtest/gtest.h>

namespace planish::lab {
namespace {

TEST(Escaped, WritesControlCharactersAndInvalidUtf8AsHexadecimal) {
  EXPECT_EQ(Escaped("plain \u00e4 \u20ac \U0001f600 \"quoted\" \\"),
            "plain \u00e4 \u20ac \U0001f600 \"quoted\" \\");
  EXPECT_EQ(Escaped("\x1b[31mred\x1b]0;title\x07"), "\\x1b[31mred\\x1b]0;title\\x07");
  EXPECT_EQ(Escaped("\ta\r\n\x7f"), "\\x09a\\x0d\\x0a\\x7f");
  EXPECT_EQ(Escaped(std::string_view("\0x", 2)), "\\x00x");
  // U+009B is the one-character form of ESC [.
  EXPECT_EQ(Escaped("\u009b31m \u00a0"), "\\xc2\\x9b31m \u00a0");
  EXPECT_EQ(Escaped("fi\xfcr \xe2\x82"), "fi\\xfcr \\xe2\\x82");
}

TEST(Escaped, KeepsTabsAndLineFeedsOnRequest) {
  EXPECT_EQ(Escaped("a\tb\n\r", /*keep_lines=*/true), "a\tb\n\\x0d");
  EXPECT_EQ(Escaped("a\r\n\rb\r\r\n", /*keep_lines=*/true), "a\r\n\\x0db\\x0d\r\n");
}

TEST(Escaped, LeavesEscapedTextUnchanged) {
  const std::string once = Escaped("\x1b \xff");
  EXPECT_EQ(Escaped(once), once);
}

TEST(Quoted, CutsAtACharacter) {
  EXPECT_EQ(Quoted("abc", 3), "\"abc\"");
  EXPECT_EQ(Quoted("abcd", 3), "\"abc...\"");
  EXPECT_EQ(Quoted("ab\u20acd", 3), "\"ab...\"");
  EXPECT_EQ(Quoted("ab\u20acd", 5), "\"ab\u20ac...\"");
  EXPECT_EQ(Quoted(std::string(9, '\x80'), 6), "\"\\x80\\x80\\x80...\"");
}

TEST(EscapedXml, ReplacesMarkup) {
  EXPECT_EQ(EscapedXml("a<b> & \"c\" 'd' é"), "a&lt;b&gt; &amp; \"c\" 'd' é");
  EXPECT_EQ(EscapedXml("<\"&'>", /*quotes=*/true), "&lt;&quot;&amp;&#39;&gt;");
}

TEST(Utf8SequenceLength, IsZeroForInvalidUtf8) {
  EXPECT_EQ(Utf8SequenceLength(""), 0u);
  EXPECT_EQ(Utf8SequenceLength("a\u00e4"), 1u);
  EXPECT_EQ(Utf8SequenceLength("\u00e4"), 2u);
  EXPECT_EQ(Utf8SequenceLength("\u20ac"), 3u);
  EXPECT_EQ(Utf8SequenceLength("\U0001f600"), 4u);
  EXPECT_EQ(Utf8SequenceLength("\xc3"), 0u);
  EXPECT_EQ(Utf8SequenceLength("\xed\xa0\x80"), 0u);
}

}  // namespace
}  // namespace planish::lab
