#include "lab/data/file_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(const std::filesystem::path& file) {
  try {
    FileContent(file, "Caller").Rest();
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

std::string Numbers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += std::to_string(i) + "\n";
  return text;
}

// More than a piece of Rest (1 MiB) and than a piece of the file (64 KiB).
class FileContentTest : public testing::TestWithParam<bool> {
 protected:
  std::filesystem::path Write(const std::string& content) {
    WriteFile(folder_ / "file", GetParam() ? Gzip(content) : content);
    return folder_ / "file";
  }
  TestFolder folder_;
};

TEST_P(FileContentTest, RestIsAllOfIt) {
  for (const std::string& content : {std::string(), std::string("x"), Numbers(400'000)}) {
    const std::filesystem::path file = Write(content);
    FileContent read(file, "Caller");
    EXPECT_EQ(read.is_gzip(), GetParam());
    EXPECT_GE(read.UpperBound(), std::ssize(content));
    EXPECT_EQ(read.Rest(), content);
    EXPECT_EQ(read.Rest(), "");
  }
}

TEST_P(FileContentTest, RestStopsWhereItIsToldTo) {
  const std::string content = Numbers(400'000);
  const std::filesystem::path file = Write(content);
  for (const int64_t most : {int64_t{0}, int64_t{1}, int64_t{1} << 20, (int64_t{1} << 20) + 1}) {
    FileContent read(file, "Caller");
    EXPECT_EQ(read.Rest(most), content.substr(0, static_cast<size_t>(most)));
    EXPECT_EQ(read.Rest(), content.substr(static_cast<size_t>(most)));
  }
}

TEST_P(FileContentTest, ReadGoesOnWhereItStopped) {
  FileContent read(Write("abcdefg"), "Caller");
  std::array<uint8_t, 4> out;
  EXPECT_EQ(read.Read(out), 4);
  EXPECT_EQ(out, (std::array<uint8_t, 4>{'a', 'b', 'c', 'd'}));
  EXPECT_EQ(read.Read(out), 3);
  EXPECT_EQ(out, (std::array<uint8_t, 4>{'e', 'f', 'g', 'd'}));
  EXPECT_EQ(read.Read(out), 0);
}

INSTANTIATE_TEST_SUITE_P(PlainAndGzip, FileContentTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "Gzip" : "Plain"; });

TEST(FileContent, ReadsGzipStreamsInARow) {
  const TestFolder temp;
  WriteFile(temp / "file", Gzip("one") + Gzip("") + Gzip("two"));
  EXPECT_EQ(FileContent(temp / "file", "Caller").Rest(), "onetwo");
}

TEST(FileContent, SaysWhatIsWrongAndWhoAsked) {
  const TestFolder temp;
  EXPECT_THAT(ErrorOf(temp / "none"),
              AllOf(StartsWith("[Caller] "), HasSubstr("none must be readable but has No such")));
  EXPECT_THAT(ErrorOf(temp.path()), HasSubstr("must be a file but has the type of a folder"));
  EXPECT_THAT(ErrorOf("/dev/null"), HasSubstr("must be a file but has the type of a device"));
  const std::string packed = Gzip(Numbers(1000));
  WriteFile(temp / "cut", packed.substr(0, packed.size() / 2));
  EXPECT_THAT(ErrorOf(temp / "cut"), HasSubstr("must be a whole gzip stream but has no end"));
  WriteFile(temp / "more", packed + "more");
  EXPECT_THAT(ErrorOf(temp / "more"), HasSubstr("must end with its gzip stream but has more"));
  std::string damaged = packed;
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);  // its checksum
  WriteFile(temp / "damaged", damaged);
  EXPECT_THAT(ErrorOf(temp / "damaged"), HasSubstr("must be a sound gzip stream but has an error"));
}

}  // namespace
}  // namespace planish::lab
