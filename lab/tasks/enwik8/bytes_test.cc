#include "lab/tasks/enwik8/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "lab/data/source.h"
#include "lab/data/test_files.h"
#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ReadError(const fs::path& path) {
  try {
    ReadBytes(path, 1 << 30);
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

// Returns bytes of every value, more than one read, that do not compress to nothing.
std::string Bytes(size_t n) {
  std::string bytes;
  uint32_t state = 1;
  while (bytes.size() < n) {
    state = state * 1664525u + 1013904223u;
    bytes += static_cast<char>(state >> 24);
  }
  return bytes;
}

TEST(ReadBytes, ReadsPlainAndGzipAlike) {
  const TestFolder temp;
  const std::string bytes = Bytes(3'000'001);
  WriteFile(temp / "plain", bytes);
  WriteFile(temp / "packed", Gzip(bytes));
  WriteFile(temp / "two.gz", Gzip(bytes.substr(0, 1000)) + Gzip(bytes.substr(1000)));
  const Text plain = ReadBytes(temp / "plain", 1 << 30);
  EXPECT_EQ(plain.characters, bytes);
  EXPECT_EQ(plain.name, "plain");
  EXPECT_EQ(plain.source, "files");
  EXPECT_THAT(plain.description, StartsWith("3,000,001 bytes read from "));
  EXPECT_EQ(ReadBytes(temp / "packed", 1 << 30).characters, bytes);
  EXPECT_EQ(ReadBytes(temp / "packed", 1 << 30).sha256, plain.sha256);
  EXPECT_EQ(ReadBytes(temp / "two.gz", 1 << 30).characters, bytes);
  for (const int64_t max_bytes : {1, 1 << 20, (1 << 20) + 1, 3'000'001}) {
    for (const std::string name : {"plain", "packed", "two.gz"}) {
      EXPECT_EQ(ReadBytes(temp / name, max_bytes).characters,
                bytes.substr(0, static_cast<size_t>(max_bytes)))
          << name << max_bytes;
    }
  }
}

TEST(ReadBytes, FindsTheFileOfAFolder) {
  const TestFolder temp;
  fs::create_directories(temp / "enwik8_prefix");
  fs::create_directories(temp / "enwik8");
  const auto content = [&] { return ReadBytes(temp.path(), 1 << 30).characters; };
  EXPECT_THAT(ReadError(temp.path()), HasSubstr("has no file enwik8 or enwik8.gz"));
  WriteFile(temp / "enwik8_prefix/README", "none");
  EXPECT_THAT(ReadError(temp.path()), HasSubstr("has no file enwik8 or enwik8.gz"));
  WriteFile(temp / "enwik8_prefix/enwik8.first7.gz", Gzip("the pre"));
  EXPECT_EQ(content(), "the pre");
  EXPECT_EQ(ReadBytes(temp.path(), 100).name, "enwik8.first7.gz");
  EXPECT_EQ(ReadBytes(temp / "enwik8_prefix", 100).characters, "the pre");
  WriteFile(temp / "enwik8/enwik8.first", "first");
  EXPECT_EQ(content(), "first");
  WriteFile(temp / "enwik8/enwik8.gz", Gzip("packed"));
  EXPECT_EQ(content(), "packed");
  WriteFile(temp / "enwik8/enwik8", "plain");
  EXPECT_EQ(content(), "plain");
  EXPECT_EQ(ReadBytes(temp / "enwik8", 100).characters, "plain");
}

// Files next to enwik8 from a download are not training data.
TEST(ReadBytes, DoesNotTakeArchivesAndChecksumsForTheSet) {
  const TestFolder temp;
  for (const char* name : {"enwik8.zip", "enwik8.bz2", "enwik8.xz", "enwik8.md5"}) {
    fs::remove_all(temp / "set");
    fs::create_directories(temp / "set");
    WriteFile(temp / "set" / name, "PK\3\4");
    EXPECT_THAT(ReadError(temp / "set"),
                HasSubstr(std::string("has no file enwik8 or enwik8.gz, only ") + name));
  }
  EXPECT_THAT(ReadError(temp / "set"), HasSubstr("name it with --data"));
  WriteFile(temp / "set/enwik8.bz2", "");
  EXPECT_THAT(ReadError(temp / "set"),
              HasSubstr("enwik8.bz2: it is a bzip2 file, unpack it first"));
  WriteFile(temp / "set/enwik8.first3", "abc");
  EXPECT_EQ(ReadBytes(temp / "set", 100).characters, "abc");
}

TEST(ReadBytes, KeepsAByteOrderMark) {
  const TestFolder temp;
  WriteFile(temp / "file", "\xef\xbb\xbfx");
  EXPECT_EQ(ReadBytes(temp / "file", 100).characters, "\xef\xbb\xbfx");
}

// 100,000,000 bytes named enwik8 are not enwik8.
TEST(ReadBytes, IdentifiesEnwik8ByItsChecksumOnly) {
  const TestFolder temp;
  WriteFile(temp / "enwik8.first100000000", std::string(100'000'000, '\0'));
  EXPECT_EQ(ReadBytes(temp.path(), 1 << 30).name, "enwik8.first100000000");
}

TEST(ReadBytes, ReportsErrors) {
  const TestFolder temp;
  EXPECT_THAT(ReadError(temp / "none"), HasSubstr("none: No such file"));
  WriteFile(temp / "empty", "");
  EXPECT_THAT(ReadError(temp / "empty"), HasSubstr("empty: it is empty"));
  WriteFile(temp / "empty.gz", Gzip(""));
  EXPECT_THAT(ReadError(temp / "empty.gz"), HasSubstr("empty.gz: it is empty"));
  const std::string packed = Gzip(Bytes(50'000));
  WriteFile(temp / "cut", packed.substr(0, packed.size() - 10));
  EXPECT_THAT(ReadError(temp / "cut"), HasSubstr("its gzip stream is truncated"));
  std::string damaged = packed;
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);  // its checksum
  WriteFile(temp / "damaged", damaged);
  EXPECT_THAT(ReadError(temp / "damaged"), HasSubstr("its gzip stream is damaged"));
}

TEST(ReadBytes, TheRealOne) {
  const std::optional<fs::path> folder = DataFolder("");
  if (!folder || !fs::exists(*folder / "enwik8_prefix")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with enwik8_prefix";
  }
  const Text text = ReadBytes(*folder, 1 << 30);
  EXPECT_NE(text.name, "enwik8");
  EXPECT_EQ(text.characters.size(), 4'154'399u);
  EXPECT_THAT(text.characters, StartsWith("<mediawiki xmlns="));
}

TEST(OpenBytes, MakesATextOnlyWithoutAPath) {
  const TestFolder temp;
  EXPECT_THROW(OpenBytes(temp / "none", 10), DataError);
  EXPECT_EQ(OpenBytes(std::nullopt, 10).characters, MakeText(10).characters);
  EXPECT_EQ(OpenBytes(std::nullopt, 1 << 30).characters.size(), size_t{kMaxSyntheticText});
}

}  // namespace
}  // namespace planish::lab
