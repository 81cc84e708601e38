#include "lab/report/markup.h"

#include <gtest/gtest.h>

namespace planish::lab {
namespace {

TEST(MarkupTest, TextAndAttributesAreEscaped) {
  EXPECT_EQ(Tag("p", {{"title", "<\"&'>"}}, "a < b & 'c'", Tag("b", {}, ">")).html(),
            "<p title=\"&lt;&quot;&amp;&#39;&gt;\">a &lt; b &amp; &#39;c&#39;<b>&gt;</b></p>");
}

TEST(MarkupTest, OnlyVoidElementsHaveNoEndTag) {
  EXPECT_EQ(Tag("div", {}).html(), "<div></div>");
  EXPECT_EQ(Element("br", {}).html(), "<br>");
  EXPECT_EQ(Element("img", {{"alt", ""}}).html(), "<img alt=\"\">");
  EXPECT_EQ(Element("meta", {{"charset", "utf-8"}}).html(), "<meta charset=\"utf-8\">");
}

TEST(MarkupTest, NonAsciiTextStays) { EXPECT_EQ(Escape("é 层 😀 ±"), "é 层 😀 ±"); }

TEST(MarkupTest, ReplacesInvalidUtf8) {
  EXPECT_EQ(CleanText("a\xFFz"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(CleanText("\xC3"), "\xEF\xBF\xBD");                          // truncated
  EXPECT_EQ(CleanText("\xC0\xAF"), "\xEF\xBF\xBD\xEF\xBF\xBD");          // overlong '/'
  EXPECT_EQ(CleanText("\xED\xA0\x80").find('\xED'), std::string::npos);  // surrogate
  EXPECT_EQ(CleanText("\xF5\x80\x80\x80").find('\xF5'), std::string::npos);
}

TEST(MarkupTest, ControlCharactersAreReplaced) {
  EXPECT_EQ(CleanText("\x1b[31m"), "\xEF\xBF\xBD[31m");
  EXPECT_EQ(CleanText(std::string_view("a\0b", 3)),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(CleanText("\xC2\x9B"), "\xEF\xBF\xBD");  // the one-character form of ESC [
  EXPECT_EQ(CleanText("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(CleanLine("a\tb\nc\xFF"), "a b c\xEF\xBF\xBD");
}

}  // namespace
}  // namespace planish::lab
