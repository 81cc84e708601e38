#include "lab/run/archive.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "lab/data/test_files.h"
#include "lab/error.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr size_t kBlock = 512;

// Returns a tar entry in the form of POSIX, by its offsets and without the code under test.
std::string Entry(const std::string& name, const std::string& content, char type = '0') {
  std::string header(kBlock, '\0');
  const auto put = [&](size_t at, const std::string& text) { text.copy(&header[at], text.size()); };
  put(0, name);
  put(100, "0000644");
  put(124, fmt::format("{:011o}", content.size()));
  put(136, "00000000000");
  header[156] = type;
  put(257, "ustar");
  put(263, "00");
  put(148, "        ");
  int sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  std::string entry = header + content;
  entry.resize((entry.size() + kBlock - 1) / kBlock * kBlock);
  return entry;
}

const std::string& End() {
  static const std::string end(2 * kBlock, '\0');
  return end;
}

// Returns the error of ReadArchive for a file with these bytes, without the file's name.
std::string FaultOf(const std::string& bytes) {
  const TestFolder folder;
  const fs::path path = folder / "a.runs.tar.gz";
  WriteFile(path, bytes);
  try {
    ReadArchive(path);
  } catch (const DataError& e) {
    const std::string prefix = "cannot read " + path.string() + ": ";
    const std::string text = e.what();
    EXPECT_TRUE(text.starts_with(prefix)) << text;
    return text.substr(std::min(prefix.size(), text.size()));
  }
  return "none";
}

std::string FaultOfTar(const std::string& tar) { return FaultOf(Gzip(tar)); }

const ArchivedRuns& TwoRuns() {
  static const ArchivedRuns runs = {
      {"small-layer-b4-s1", {"{}", "{}\n{}\n", "{\"status\":1}"}},
      {"small-none-b4-s1", {"{\"a\":2}", "", std::nullopt}},
  };
  return runs;
}

TEST(Archive, RoundTripsRuns) {
  const TestFolder folder;
  const fs::path path = folder / "deep/er/a.runs.tar.gz";
  EXPECT_THAT(AddToArchive(path, TwoRuns()), IsEmpty());
  EXPECT_EQ(ReadArchive(path), TwoRuns());
}

TEST(Archive, RoundTripsContentsOfEverySizeAroundABlock) {
  const TestFolder folder;
  ArchivedRuns runs;
  for (const size_t size : {1u, 511u, 512u, 513u, 1024u, 70'000u}) {
    std::string content(size, 'x');
    for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 7 + size);
    runs[fmt::format("run-{}", size)] = {content, content, content, content};
  }
  AddToArchive(folder / "a.runs.tar.gz", runs);
  EXPECT_EQ(ReadArchive(folder / "a.runs.tar.gz"), runs);
}

TEST(Archive, ReadsArchivesOfOtherPrograms) {
  const TestFolder folder;
  const std::string tar =
      Entry("b/metrics.jsonl", "{}\n") + Entry("b/config.json", "{}") + Entry("a/config.json", "1");
  WriteFile(folder / "a.runs.tar.gz", Gzip(tar + End() + End()));
  EXPECT_EQ(ReadArchive(folder / "a.runs.tar.gz"),
            (ArchivedRuns{{"a", {"1", "", std::nullopt}}, {"b", {"{}", "{}\n", std::nullopt}}}));
}

TEST(Archive, EqualRunsGiveEqualBytes) {
  const TestFolder folder;
  AddToArchive(folder / "a.runs.tar.gz", TwoRuns());
  for (const auto& [name, files] : TwoRuns())
    AddToArchive(folder / "b.runs.tar.gz", {{name, files}});
  EXPECT_EQ(ReadFile(folder / "a.runs.tar.gz"), ReadFile(folder / "b.runs.tar.gz"));
}

TEST(Archive, ANewRunLeavesTheBytesOfTheOthers) {
  const TestFolder folder;
  const fs::path path = folder / "a.runs.tar.gz";
  AddToArchive(path, {{"s1", {"{}", "first", "{}"}}, {"s3", {"{}", "third", "{}"}}});
  const std::string before = ReadFile(path);
  AddToArchive(path, {{"s2", {"{}", "second", "{}"}}});
  const std::string after = ReadFile(path);
  size_t begin = 0;
  while (before[begin] == after[begin]) ++begin;
  EXPECT_TRUE(after.ends_with(before.substr(begin)));
}

TEST(Archive, ReplacesTheRunOfTheSameNameOnly) {
  const TestFolder folder;
  const fs::path path = folder / "a.runs.tar.gz";
  AddToArchive(path, {{"s1", {"1", "", "{}"}}, {"s2", {"2", "", std::nullopt}}});
  EXPECT_THAT(AddToArchive(path, {{"s2", {"3", "", "{}"}}, {"s3", {"4", "", "{}"}}}), IsEmpty());
  EXPECT_EQ(
      ReadArchive(path),
      (ArchivedRuns{{"s1", {"1", "", "{}"}}, {"s2", {"3", "", "{}"}}, {"s3", {"4", "", "{}"}}}));
}

TEST(Archive, AnUnfinishedRunDoesNotReplaceAFinishedOne) {
  const TestFolder folder;
  const fs::path path = folder / "a.runs.tar.gz";
  AddToArchive(path, {{"s1", {"1", "", "{}"}}});
  EXPECT_THAT(AddToArchive(path, {{"s1", {"2", "", std::nullopt}}}), ElementsAre("s1"));
  EXPECT_EQ(ReadArchive(path), (ArchivedRuns{{"s1", {"1", "", "{}"}}}));
}

TEST(Archive, IsNotWrittenIfNothingChanges) {
  const TestFolder folder;
  const fs::path path = folder / "a.runs.tar.gz";
  // Another program's bytes for the same runs, which a rewriting would replace.
  WriteFile(path, Gzip(Entry("a/config.json", "1") + End() + End()));
  const std::string before = ReadFile(path);
  AddToArchive(path, {{"a", {"1", "", std::nullopt}}});
  EXPECT_EQ(ReadFile(path), before);
}

TEST(Archive, ABrokenOneIsNotReplaced) {
  const TestFolder folder;
  const fs::path path = folder / "a.runs.tar.gz";
  WriteFile(path, "no archive");
  EXPECT_THROW(AddToArchive(path, TwoRuns()), DataError);
  EXPECT_EQ(ReadFile(path), "no archive");
  EXPECT_THAT(folder.Entries(), ElementsAre("a.runs.tar.gz"));
}

TEST(Archive, ConcurrentAdditionsAreAllKept) {
  const TestFolder folder;
  const fs::path path = folder / "a.runs.tar.gz";
  constexpr int kThreads = 4, kRuns = 8;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRuns; ++i) {
        AddToArchive(path, {{fmt::format("s{}", t * kRuns + i), {"{}", "", "{}"}}});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ReadArchive(path).size(), size_t{kThreads * kRuns});
}

TEST(Archive, NamesGoUpToTheLimitOfTar) {
  const TestFolder folder;
  const fs::path path = folder / "a.runs.tar.gz";
  ArchivedRuns runs;
  for (const size_t size : {86u, 87u, 88u, 89u, 100u, 155u}) {
    runs[std::string(size, 'n')] = {"{}", "m", "r"};
  }
  AddToArchive(path, runs);
  EXPECT_EQ(ReadArchive(path), runs);
  const std::string before = ReadFile(path);
  EXPECT_THAT([&] { AddToArchive(path, {{std::string(156, 'n'), {"{}", "", {}}}}); },
              ThrowsMessage<RunError>(AllOf(HasSubstr("cannot write " + path.string()),
                                            HasSubstr("156 bytes, and 155 are the limit"))));
  EXPECT_EQ(ReadFile(path), before);
}

TEST(Archive, RefusesEveryTruncation) {
  const TestFolder folder;
  AddToArchive(folder / "a.runs.tar.gz", TwoRuns());
  const std::string whole = ReadFile(folder / "a.runs.tar.gz");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(FaultOf(whole.substr(0, size)), "it is truncated") << size;
  }
}

TEST(Archive, RefusesEveryChangedByte) {
  const TestFolder folder;
  AddToArchive(folder / "a.runs.tar.gz", TwoRuns());
  const std::string whole = ReadFile(folder / "a.runs.tar.gz");
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x55);
    WriteFile(folder / "a.runs.tar.gz", changed);
    try {
      // A gzip header has bytes without meaning: the time, the system, flags of the compressor.
      EXPECT_EQ(ReadArchive(folder / "a.runs.tar.gz"), TwoRuns()) << i;
    } catch (const DataError& e) {
      EXPECT_THAT(e.what(), HasSubstr("a.runs.tar.gz")) << i;
    }
  }
}

TEST(Archive, RefusesTruncatedTars) {
  const std::string tar = Entry("a/config.json", std::string(600, 'x')) + End();
  for (const size_t size : {0u, 100u, 511u, 512u, 600u, 1111u, 1200u, 1536u, 1700u}) {
    EXPECT_EQ(FaultOfTar(tar.substr(0, size)), "it is truncated") << size;
  }
  EXPECT_EQ(FaultOfTar(tar.substr(0, 3 * kBlock + kBlock)), "none");
}

TEST(Archive, RefusesOtherFiles) {
  EXPECT_EQ(FaultOf(""), "it is truncated");
  EXPECT_THAT(FaultOf("{\"runs\": []}"), HasSubstr("not a gzip file"));
  EXPECT_THAT(FaultOf(Gzip(Entry("a/config.json", "1") + End()) + "more"),
              HasSubstr("not a gzip file or damaged"));
  EXPECT_THAT(FaultOfTar(std::string(4 * kBlock, 'x')), HasSubstr("header at byte 0 is malformed"));
  EXPECT_EQ(FaultOfTar(End()), "it contains no run");
  EXPECT_EQ(FaultOfTar(Entry("a/config.json", "1") + End() + Entry("b/config.json", "1")),
            "other bytes follow its end");
}

TEST(Archive, RefusesMalformedHeaders) {
  const std::string good = Entry("a/config.json", "1");
  for (const size_t at : {0u, 124u, 148u, 257u, 400u}) {
    std::string bad = good;
    bad[at] = 'Z';
    EXPECT_EQ(FaultOfTar(bad + End()), "the tar header at byte 0 is malformed") << at;
  }
  // Sizes with a right checksum: none, negative, and in the binary form of GNU tar.
  for (const char* size : {"\0", "-0000000001", "\x80\x01"}) {
    std::string bad = good;
    std::fill_n(bad.begin() + 124, 12, '\0');
    std::string(size).copy(&bad[124], 12);
    bad.replace(148, 8, 8, ' ');
    int sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += static_cast<uint8_t>(bad[i]);
    fmt::format("{:06o}", sum).copy(&bad[148], 6);
    bad[154] = '\0';
    EXPECT_EQ(FaultOfTar(bad + End()), "the size before byte 512 is malformed");
  }
}

TEST(Archive, RefusesNamesThatAreNotFilesOfRuns) {
  for (const char* name :
       {"config.json", "/config.json", "./config.json", "../config.json", "a/../config.json",
        "/etc/config.json", "a/b/config.json", "a//config.json", "a/checkpoint", "a/config.json/",
        "a/", "a", "..", "a/config.json "}) {
    EXPECT_EQ(FaultOfTar(Entry(name, "1") + End()),
              fmt::format("{} is not RUN/config.json, RUN/metrics.jsonl, RUN/result.json, "
                          "RUN/predictions.csv.gz",
                          name));
  }
  EXPECT_THAT(FaultOfTar(Entry("a\x1b[31m/x", "1") + End()), HasSubstr("a\\x1b[31m/x is not"));
}

TEST(Archive, RefusesLinksFoldersDevicesAndExtensions) {
  for (const char type : std::string("1234567xgLKSV")) {
    EXPECT_EQ(FaultOfTar(Entry("a/config.json", "", type) + End()),
              "a/config.json is not a regular file")
        << type;
  }
}

TEST(Archive, RefusesDuplicatesAndRunsWithoutConfig) {
  EXPECT_EQ(FaultOfTar(Entry("a/config.json", "1") + Entry("a/config.json", "1") + End()),
            "a/config.json is in it twice");
  EXPECT_EQ(FaultOfTar(Entry("a/config.json", "1") + Entry("b/result.json", "1") + End()),
            "b has no config.json");
}

TEST(Archive, RefusesTooLargeContents) {
  std::string member = Gzip(std::string(32 << 20, '\0'));
  std::string bomb;
  while (std::ssize(bomb) <= 8 * std::ssize(member)) bomb += member;
  EXPECT_THAT(FaultOf(bomb), HasSubstr("it unpacks to more than 268435456 bytes"));
  // A size that the file does not have is not allocated.
  std::string entry = Entry("a/config.json", "1");
  entry = Entry("a/config.json", std::string(1000, 'x')).substr(0, kBlock) + entry.substr(kBlock);
  EXPECT_EQ(FaultOfTar(entry), "it is truncated");
}

TEST(Archive, IsARegularFileWithTheEnding) {
  const TestFolder folder;
  WriteFile(folder / "a.runs.tar.gz", "");
  WriteFile(folder / "a.tar.gz", "");
  WriteFile(folder / ".runs.tar.gz", "");
  fs::create_directory(folder / "folder.runs.tar.gz");
  ASSERT_EQ(mkfifo((folder / "pipe.runs.tar.gz").c_str(), 0600), 0);
  EXPECT_TRUE(IsArchive(folder / "a.runs.tar.gz"));
  EXPECT_FALSE(IsArchive(folder / "a.tar.gz"));
  EXPECT_FALSE(IsArchive(folder / ".runs.tar.gz"));
  EXPECT_FALSE(IsArchive(folder / "folder.runs.tar.gz"));
  EXPECT_FALSE(IsArchive(folder / "absent.runs.tar.gz"));
  EXPECT_THAT([&] { ReadArchive(folder / "pipe.runs.tar.gz"); },
              ThrowsMessage<RunError>(HasSubstr("it is not a regular file")));
}

}  // namespace
}  // namespace planish::lab
