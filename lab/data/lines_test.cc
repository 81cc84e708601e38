#include "lab/data/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ReadLinesTest : public ::testing::Test {
 protected:
  std::vector<std::string> Lines(const std::string& bytes) {
    WriteFile(folder / "text", bytes);
    return ReadLines(folder / "text");
  }
  std::string ErrorOf(const std::string& bytes) {
    try {
      Lines(bytes);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }
  TestFolder folder;
};

TEST(SplitLines, SplitsOnlyAtLineFeeds) {
  EXPECT_THAT(SplitLines("a\r\n\nb"), ElementsAre("a\r", "", "b"));
  EXPECT_THAT(SplitLines("a\n"), ElementsAre("a"));
  EXPECT_THAT(SplitLines("\n"), ElementsAre(""));
  EXPECT_THAT(SplitLines(""), IsEmpty());
}

TEST_F(ReadLinesTest, SplitsOnlyAtLineFeeds) {
  EXPECT_THAT(Lines("a\nb c\n\nd"), ElementsAre("a", "b c", "", "d"));
  EXPECT_THAT(Lines("a\r\nb\n"), ElementsAre("a", "b"));
  // U+0085 and U+2028, at which other programs split.
  EXPECT_THAT(Lines("a\u0085b\u2028c\n"), ElementsAre("a\u0085b\u2028c"));
  EXPECT_THAT(Lines(""), IsEmpty());
}

TEST_F(ReadLinesTest, UnpacksGzipUnderAnyName) {
  std::string big;
  for (int i = 0; i < 200'000; ++i) big += std::to_string(i) + "\n";
  const auto lines = Lines(Gzip(big));
  ASSERT_EQ(lines.size(), 200'000u);
  EXPECT_EQ(lines.back(), "199999");
  EXPECT_THAT(Lines(Gzip("one\ntwo")), ElementsAre("one", "two"));
}

TEST_F(ReadLinesTest, ReportsErrors) {
  EXPECT_THAT(ErrorOf("fine\nfi\xfcr\n"), HasSubstr("text, line 2: byte 0xfc at column 3 is not "
                                                    "UTF-8"));
  std::string packed = Gzip("some text that is long enough to be cut somewhere in its middle\n");
  EXPECT_THAT(ErrorOf(packed.substr(0, packed.size() - 12)),
              HasSubstr("its gzip stream is truncated"));
  packed[packed.size() - 6] = static_cast<char>(packed[packed.size() - 6] ^ 1);  // the CRC
  EXPECT_THAT(ErrorOf(packed), HasSubstr("its gzip stream is damaged"));
  EXPECT_THROW(ReadLines(folder / "none"), DataError);
  EXPECT_THROW(ReadLines(folder.path()), DataError);
}

TEST_F(ReadLinesTest, LeavesOutAByteOrderMark) {
  EXPECT_THAT(Lines("\xef\xbb\xbfone\ntwo\n"), ElementsAre("one", "two"));
  EXPECT_THAT(Lines(Gzip("\xef\xbb\xbfone")), ElementsAre("one"));
  EXPECT_THAT(Lines("\xef\xbb\xbf"), IsEmpty());
  EXPECT_THAT(Lines("a\n\xef\xbb\xbf"),
              ElementsAre("a", "\xef\xbb\xbf"));  // in the text: a character
}

TEST_F(ReadLinesTest, RefusesOtherEncodings) {
  using namespace std::string_literals;
  EXPECT_THAT(
      ErrorOf("\xff\xfe"
              "a\0\n\0"s),
      HasSubstr("text: it is in UTF-16: convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)"));
  EXPECT_THAT(ErrorOf("\xfe\xff\0a\0\n"s), HasSubstr("it is in UTF-16"));
  EXPECT_THAT(ErrorOf("\xff\xfe\0\0a\0\0\0"s), HasSubstr("it is in UTF-32"));
  EXPECT_THAT(ErrorOf("\0\0\xfe\xff\0\0\0a"s), HasSubstr("it is in UTF-32"));
  // Without a mark.
  EXPECT_THAT(ErrorOf("one\na\0\n\0"s), HasSubstr("it has a zero byte on line 2"));
}

TEST_F(ReadLinesTest, RefusesALineLongerThanTheLimit) {
  const std::string longest(kMaxLine, 'x');
  EXPECT_THAT(Lines("a\n" + longest + "\nb"), ElementsAre("a", longest, "b"));
  const std::string error = "text: line 2 is longer than 16,777,216 bytes";
  EXPECT_THAT(ErrorOf("a\n" + longest + "x\nb"), HasSubstr(error));
  EXPECT_THAT(ErrorOf(Gzip("a\n" + longest + "x")), HasSubstr(error));
}

TEST(ReadLine, ReadsAsReadLinesDoes) {
  const auto lines = [](const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> read;
    for (std::string line; ReadLine(in, "stdin", std::ssize(read) + 1, line);) read.push_back(line);
    return read;
  };
  EXPECT_THAT(lines("\xef\xbb\xbfone\r\n\n\xef\xbb\xbftwo"),
              ElementsAre("one", "", "\xef\xbb\xbftwo"));
  EXPECT_THAT(lines("one\n"), ElementsAre("one"));
  EXPECT_THAT(lines(""), IsEmpty());
  EXPECT_THROW(lines(std::string(kMaxLine + 1, 'x')), DataError);
}

TEST(FindInvalidUtf8, KnowsTheWellFormedSequences) {
  const auto valid = [](std::string_view text) { return !FindInvalidUtf8(text); };
  EXPECT_TRUE(valid("aä€😀"));
  EXPECT_TRUE(valid("\xc2\x80 \xe0\xa0\x80 \xed\x9f\xbf \xf4\x8f\xbf\xbf"));
  for (const char* bad :
       {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xc3("}) {
    EXPECT_FALSE(valid(bad)) << ::testing::PrintToString(bad);
  }
  EXPECT_EQ(FindInvalidUtf8("ä\xff"), 2u);
}

TEST(IsBlank, KnowsBlanks) {
  EXPECT_TRUE(IsBlank(""));
  EXPECT_TRUE(IsBlank(" \t\u00a0 "));
  EXPECT_FALSE(IsBlank(" . "));
  EXPECT_FALSE(IsBlank("\u00c4"));
}

}  // namespace
}  // namespace planish::lab
