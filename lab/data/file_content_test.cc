#include "lab/data/file_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(const std::filesystem::path& file) {
  try {
    FileContent(file).Rest();
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

// Content larger than a piece of Rest (1 MiB) and of the file (64 KiB).
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
    FileContent read(file);
    EXPECT_EQ(read.is_packed(), GetParam());
    EXPECT_GE(read.UpperBound(), std::ssize(content));
    EXPECT_EQ(read.Rest(), content);
    EXPECT_EQ(read.Rest(), "");
  }
}

TEST_P(FileContentTest, RestStopsAtItsLimit) {
  const std::string content = Numbers(400'000);
  const std::filesystem::path file = Write(content);
  for (const int64_t max_bytes :
       {int64_t{0}, int64_t{1}, int64_t{1} << 20, (int64_t{1} << 20) + 1}) {
    FileContent read(file);
    EXPECT_EQ(read.Rest(max_bytes), content.substr(0, static_cast<size_t>(max_bytes)));
    EXPECT_EQ(read.Rest(), content.substr(static_cast<size_t>(max_bytes)));
  }
}

TEST_P(FileContentTest, ReadContinuesAfterTheLastByte) {
  FileContent read(Write("abcdefg"));
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
  EXPECT_EQ(FileContent(temp / "file").Rest(), "onetwo");
}

TEST(FileContent, ReportsErrors) {
  const TestFolder temp;
  EXPECT_THAT(ErrorOf(temp / "none"),
              AllOf(StartsWith("cannot read "), HasSubstr("none: No such file")));
  EXPECT_THAT(ErrorOf(temp.path()), HasSubstr("it is a folder, not a file"));
  EXPECT_THAT(ErrorOf("/dev/null"), HasSubstr("it is a device or pipe"));
  const std::string packed = Gzip(Numbers(1000));
  WriteFile(temp / "cut", packed.substr(0, packed.size() / 2));
  EXPECT_THAT(ErrorOf(temp / "cut"), HasSubstr("its gzip stream is truncated"));
  WriteFile(temp / "more", packed + "more");
  EXPECT_THAT(ErrorOf(temp / "more"), HasSubstr("other bytes follow its gzip stream"));
  std::string damaged = packed;
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);  // its checksum
  WriteFile(temp / "damaged", damaged);
  EXPECT_THAT(ErrorOf(temp / "damaged"), HasSubstr("its gzip stream is damaged"));
}

// Zero bytes that fill the last block of a tape, as in GNU gzip's and Python's readers.
TEST(FileContent, SkipsZerosAfterAGzipMember) {
  const TestFolder temp;
  const std::string zeros(200'000, '\0');  // more than one read
  for (const std::string& tail : {zeros.substr(0, 1), zeros, zeros + Gzip("two\n")}) {
    WriteFile(temp / "file", Gzip("one\n") + tail);
    EXPECT_EQ(FileContent(temp / "file").Rest(),
              tail.size() > zeros.size() ? "one\ntwo\n" : "one\n");
  }
  WriteFile(temp / "file", Gzip("one\n") + zeros + "x");
  EXPECT_THAT(ErrorOf(temp / "file"), HasSubstr("other bytes follow its gzip stream"));
}

struct Packed {
  std::string start, what;
};

std::vector<Packed> PackedFiles() {
  using namespace std::string_literals;
  const std::string before_mark(257, 'n');
  return {{"PK\3\4\x14"s, "a zip archive"},
          {"PK\5\6\0"s, "a zip archive"},
          {"BZh91AY&SY"s, "a bzip2 file"},
          {"BZh9\x17\x72\x45\x38\x50\x90"s, "a bzip2 file"},
          {"\xfd\x37zXZ\0\0\4"s, "an xz file"},
          {"\x28\xb5\x2f\xfd\x24"s, "a zstd file"},
          {"7z\xbc\xaf\x27\x1c\0\4"s, "a 7-Zip archive"},
          {"\x04\x22\x4d\x18\x64"s, "an lz4 file"},
          {"Rar!\x1a\x07\x01"s, "a RAR archive"},
          {before_mark + "ustar\0"s + "00", "a tar archive"},
          {before_mark + "ustar  \0"s, "a tar archive"},
          {"\x1f\x9d\x90x"s, "a file of compress"},
          {"\x5d\0\0\x80\0"s, "an lzma file"},
          {"LZIP\1"s, "an lzip file"},
          {"%PDF-1.7\n"s, "a PDF document"}};
}

TEST(FileContent, RefusesOtherArchivesByTheirFirstBytes) {
  const TestFolder temp;
  for (const auto& [start, what] : PackedFiles()) {
    for (const std::string& content : {start, start + std::string(1000, 'x')}) {
      WriteFile(temp / "enwik8", content);
      EXPECT_THAT(ErrorOf(temp / "enwik8"),
                  AllOf(StartsWith("cannot read " + (temp / "enwik8").string() + ": it is " + what),
                        HasSubstr(", and only gzip is read: ")));
      WriteFile(temp / "enwik8.gz", Gzip(content));
      EXPECT_THAT(ErrorOf(temp / "enwik8.gz"),
                  HasSubstr("enwik8.gz: it is " + what + " within a gzip file"));
    }
  }
  WriteFile(temp / "twice", Gzip(Gzip("one")));
  EXPECT_THAT(ErrorOf(temp / "twice"), HasSubstr("it is a gzip file within a gzip file"));
}

TEST(FileContent, ReadsTextThatOnlyResemblesAnArchive) {
  const TestFolder temp;
  for (const std::string text :
       {"PK", "BZh9 is how bzip2 begins", "Rar!", "7z x", "ustar", "%PDF"}) {
    WriteFile(temp / "file", text);
    EXPECT_EQ(FileContent(temp / "file").Rest(), text);
  }
  const std::string tar = std::string(257, 'n') + "ustar is a format";
  WriteFile(temp / "file", tar);
  EXPECT_EQ(FileContent(temp / "file").Rest(), tar);
}

TEST(FileContent, RefusesNamesThatContradictTheFirstBytes) {
  const TestFolder temp;
  std::string damaged = Gzip("some text");
  damaged[0] ^= 1;
  for (const auto& [name, what] : {std::pair("a.gz", "a gzip file"),
                                   {"a.txt.GZ", "a gzip file"},
                                   {"a.tgz", "a gzip file"},
                                   {"a.zip", "a zip archive"},
                                   {"a.tar", "a tar archive"},
                                   {"a.xz", "an xz file"}}) {
    for (const std::string& content : {damaged, std::string("some text")}) {
      WriteFile(temp / name, content);
      EXPECT_THAT(ErrorOf(temp / name), HasSubstr(std::string(name) + ": its name is that of " +
                                                  what + ", but its first bytes are not"));
    }
  }
}

TEST(FileContent, RefusesPipesWithoutWaiting) {
  const TestFolder temp;
  ASSERT_EQ(mkfifo((temp / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf(temp / "pipe"), HasSubstr("pipe: it is a device or pipe"));
  EXPECT_THAT(ErrorOf("/dev/zero"), HasSubstr("/dev/zero: it is a device or pipe"));
}

TEST(FileContent, EscapesTheFilesName) {
  const TestFolder temp;
  EXPECT_THAT(ErrorOf(temp / "\x1b[2J\xff"), HasSubstr("\\x1b[2J\\xff: No such file"));
}

#ifndef __SANITIZE_ADDRESS__  // it reserves more address space than the limit
TEST(FileContent, NamesTheFileWhenMemoryRunsOut) {
  const TestFolder temp;
  WriteFile(temp / "file", "");
  std::filesystem::resize_file(temp / "file", int64_t{4} << 30);  // uses no disk space
  const auto read = [&] {
    const rlimit limit{int64_t{2} << 30, int64_t{2} << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    std::fputs(ErrorOf(temp / "file").c_str(), stderr);
    _exit(0);
  };
  EXPECT_EXIT(read(), testing::ExitedWithCode(0), "cannot read .*/file: not enough memory");
}
#endif

TEST(FileContent, RefusesGzipBombs) {
  const TestFolder folder;
  const auto content_of = [&](const std::string& content) {
    WriteFile(folder / "bomb.gz", Gzip(content));
    return FileContent(folder / "bomb.gz").Rest();
  };
  // Zeros shrink by a factor of 1000.
  const std::string zeros(64 << 20, '\0');
  EXPECT_TRUE(content_of(zeros) == zeros);
  try {
    content_of(zeros + '\0');
    ADD_FAILURE() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("bomb.gz"), HasSubstr("more than 200 times")));
  }
}

TEST(FindFile, FindsPlainThenGzip) {
  const TestFolder temp;
  EXPECT_EQ(FindFile(temp.path(), "a"), std::nullopt);
  EXPECT_THROW(NeedFile(temp.path(), "a"), DataError);
  WriteFile(temp / "a.gz", Gzip("x"));
  EXPECT_EQ(NeedFile(temp.path(), "a"), temp / "a.gz");
  WriteFile(temp / "a", "x");
  EXPECT_EQ(FindFile(temp.path(), "a"), temp / "a");
}

}  // namespace
}  // namespace planish::lab
