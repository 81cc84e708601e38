#include "lab/run/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lab/error.h"
#include "lab/run/posix_file.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Matches the error of a failed write by the system's reason.
auto FailsWith(const std::string& reason) {
  return ThrowsMessage<RunError>(AllOf(HasSubstr("cannot write"), HasSubstr(reason)));
}

TEST(WriteFileAtomically, WritesTextAndReplacesIt) {
  const TestFolder folder;
  const fs::path path = folder / "a.json";
  WriteFileAtomically(path, "a longer first version");
  WriteFileAtomically(path, "second");
  EXPECT_EQ(ReadFile(path), "second");
  WriteFileAtomically(path, "");
  EXPECT_EQ(ReadFile(path), "");
  EXPECT_EQ(folder.Entries(), std::vector<std::string>{"a.json"});
}

TEST(WriteFileAtomically, JoinsPieces) {
  const TestFolder folder;
  const std::string zero("\0x", 2);
  const std::vector<std::span<const std::byte>> pieces{AsBytes("ab"), AsBytes(""), AsBytes(zero)};
  WriteFileAtomically(folder / "a", pieces);
  EXPECT_EQ(ReadFile(folder / "a"), "ab" + zero);
  WriteFileAtomically(folder / "a", std::span<const std::span<const std::byte>>());
  EXPECT_EQ(ReadFile(folder / "a"), "");
}

TEST(WriteFileAtomically, AcceptsANameWithoutAFolder) {
  const TestFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  WriteFileAtomically("plain", "x");
  fs::current_path(before);
  EXPECT_EQ(ReadFile(folder / "plain"), "x");
}

TEST(WriteFileAtomically, ReusesTheTemporaryOfAKilledProcess) {
  const TestFolder folder;
  std::ofstream(folder / ".a.tmp") << "half of a much longer file that a killed process left";
  WriteFileAtomically(folder / "a", "new");
  EXPECT_EQ(ReadFile(folder / "a"), "new");
  EXPECT_EQ(folder.Entries(), std::vector<std::string>{"a"});
}

TEST(WriteFileAtomically, DoesNotFollowALinkInTheTemporarysPlace) {
  const TestFolder folder;
  std::ofstream(folder / "victim") << "kept";
  fs::create_symlink("victim", folder / ".a.tmp");
  EXPECT_THAT([&] { WriteFileAtomically(folder / "a", "new"); }, FailsWith("symbolic link"));
  EXPECT_EQ(ReadFile(folder / "victim"), "kept");
}

TEST(WriteFileAtomically, RefusesAPipeInTheTemporarysPlace) {
  const TestFolder folder;
  ASSERT_EQ(mkfifo((folder / ".a.tmp").c_str(), 0600), 0);
  EXPECT_THAT([&] { WriteFileAtomically(folder / "a", "new"); }, FailsWith("regular file"));
}

TEST(WriteFileAtomically, ReportsAMissingFolder) {
  const TestFolder folder;
  EXPECT_THAT([&] { WriteFileAtomically(folder / "no" / "a", "x"); },
              FailsWith("No such file or directory"));
  EXPECT_THAT([&] { WriteFileAtomically(folder.path() / "", "x"); }, FailsWith("no file name"));
}

TEST(WriteFileAtomically, LeavesNoTemporaryWhenThePathIsAFolder) {
  const TestFolder folder;
  fs::create_directory(folder / "a");
  EXPECT_THAT([&] { WriteFileAtomically(folder / "a", "x"); }, FailsWith("Is a directory"));
  EXPECT_EQ(folder.Entries(), std::vector<std::string>{"a"});
}

TEST(WriteFileAtomically, RefusesATemporaryThatIsAnotherFileToo) {
  const TestFolder folder;
  WriteFile(folder / "victim", "kept");
  fs::create_hard_link(folder / "victim", folder / ".a.tmp");
  EXPECT_THAT([&] { WriteFileAtomically(folder / "a", "new"); }, FailsWith("hard link"));
  EXPECT_EQ(ReadFile(folder / "victim"), "kept");
}

TEST(WriteFileAtomically, ReplacesALinkAndNotItsTarget) {
  const TestFolder folder;
  WriteFile(folder / "victim", "kept");
  fs::create_symlink("victim", folder / "a");
  WriteFileAtomically(folder / "a", "new");
  EXPECT_EQ(ReadFile(folder / "victim"), "kept");
  EXPECT_EQ(ReadFile(folder / "a"), "new");
  EXPECT_FALSE(fs::is_symlink(folder / "a"));
}

TEST(WriteFileAtomically, RefusesToReplaceIrregularFiles) {
  const TestFolder folder;
  ASSERT_EQ(mkfifo((folder / "a").c_str(), 0600), 0);
  EXPECT_THAT([&] { WriteFileAtomically(folder / "a", "new"); }, FailsWith("regular file"));
  EXPECT_TRUE(fs::is_fifo(folder / "a"));
  EXPECT_EQ(folder.Entries(), std::vector<std::string>{"a"});
}

// A file size limit cuts the write short like a full disk.
TEST(WriteFileAtomically, KeepsTheOldFileWhenTheNewOneDoesNotFit) {
  const TestFolder folder;
  WriteFileAtomically(folder / "a", "old");
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THAT([&] { WriteFileAtomically(folder / "a", std::string(2000, 'x')); },
              FailsWith("File too large"));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(ReadFile(folder / "a"), "old");
  EXPECT_EQ(folder.Entries(), std::vector<std::string>{"a"});
}

TEST(WriteFileAtomically, ReportsMissingPermission) {
  const TestFolder folder;
  // The administrator can write anywhere, so the test then changes its user.
  const bool administrator = geteuid() == 0;
  fs::permissions(folder.path(), fs::perms(0555));
  ASSERT_EQ(seteuid(administrator ? 65534 : geteuid()), 0);
  EXPECT_THAT([&] { WriteFileAtomically(folder / "a", "x"); }, FailsWith("Permission denied"));
  ASSERT_EQ(seteuid(administrator ? 0 : geteuid()), 0);
  fs::permissions(folder.path(), fs::perms(0755));
}

TEST(WriteFileAtomically, ShowsReadersWholeFilesWhileWritersCompete) {
  const TestFolder folder;
  const fs::path path = folder / "a";
  const std::string one(100'000, '1'), two(50'000, '2');
  WriteFileAtomically(path, one);
  std::vector<std::thread> writers;
  for (const std::string* text : {&one, &two}) {
    writers.emplace_back([&path, text] {
      for (int i = 0; i < 20; ++i) WriteFileAtomically(path, *text);
    });
  }
  for (int i = 0; i < 200; ++i) {
    const std::string seen = ReadFile(path);
    EXPECT_TRUE(seen == one || seen == two) << seen.size();
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(folder.Entries(), std::vector<std::string>{"a"});
}

// Returns a device like /dev/null in `folder`, or nullopt if only the administrator can create one.
std::optional<fs::path> MakeNullDevice(const TestFolder& folder) {
  const fs::path device = folder / "null";
  if (mknod(device.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) return std::nullopt;
  const FileDescriptor fd(open(device.c_str(), O_WRONLY));  // refused on some file systems
  return fd ? std::optional(device) : std::nullopt;
}

TEST(WriteOutputFile, WritesAndReplacesAFile) {
  const TestFolder folder;
  WriteOutputFile(folder / "a", "first");
  WriteOutputFile(folder / "a", "second");
  EXPECT_EQ(ReadFile(folder / "a"), "second");
  EXPECT_EQ(folder.Entries(), std::vector<std::string>{"a"});
}

TEST(WriteOutputFile, WritesIntoADevice) {
  const TestFolder folder;
  const std::optional<fs::path> device = MakeNullDevice(folder);
  if (!device) GTEST_SKIP() << "a device can only be made by the administrator";
  WriteOutputFile(*device, "text");
  fs::create_symlink("null", folder / "link");
  WriteOutputFile(folder / "link", "text");
  EXPECT_TRUE(fs::is_character_file(*device));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_THAT([&] { WriteFileAtomically(*device, "text"); }, FailsWith("regular file"));
  EXPECT_TRUE(fs::is_character_file(*device));
}

TEST(WriteOutputFile, WritesIntoAPipe) {
  const TestFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = ReadFile(folder / "pipe"); });
  WriteOutputFile(folder / "pipe", "through the pipe");
  reader.join();
  EXPECT_EQ(read, "through the pipe");
  EXPECT_TRUE(fs::is_fifo(folder / "pipe"));
}

TEST(WriteOutputFile, FollowsLinks) {
  const TestFolder folder;
  fs::create_directory(folder / "there");
  WriteFile(folder / "there/file", "old");
  fs::create_symlink("there/file", folder / "one");
  fs::create_symlink(folder / "one", folder / "two");
  fs::create_symlink("there/new", folder / "dangling");
  WriteOutputFile(folder / "two", "new");
  WriteOutputFile(folder / "dangling", "made");
  EXPECT_EQ(ReadFile(folder / "there/file"), "new");
  EXPECT_EQ(ReadFile(folder / "there/new"), "made");
  for (const char* link : {"one", "two", "dangling"}) EXPECT_TRUE(fs::is_symlink(folder / link));
  fs::create_symlink("loop", folder / "loop");
  EXPECT_THAT([&] { WriteOutputFile(folder / "loop", "x"); }, FailsWith("symbolic links"));
}

TEST(WriteOutputFile, RefusesAFolder) {
  const TestFolder folder;
  EXPECT_THAT([&] { WriteOutputFile(folder.path(), "x"); }, FailsWith("Is a directory"));
  EXPECT_THAT([&] { WriteOutputFile(folder / "no/file", "x"); },
              FailsWith("No such file or directory"));
}

// A shell has opened stdout. Replacing its file would lose later output.
TEST(WriteOutputFile, WritesIntoTheFileThatStdoutIs) {
  const TestFolder folder;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int fd = open((folder / "out").c_str(), O_WRONLY | O_CREAT, 0600);
    if (dup2(fd, STDOUT_FILENO) < 0) _exit(1);
    WriteOutputFile(folder / "out", "page ");
    _exit(write(STDOUT_FILENO, "printed", 7) == 7 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ReadFile(folder / "out"), "page printed");
}

// A process killed at any moment leaves the old file or the new one.
TEST(WriteFileAtomically, SurvivesKilledWriters) {
  const TestFolder folder;
  const fs::path path = folder / "a";
  const std::string one(300'000, '1'), two(300'000, '2');
  WriteFileAtomically(path, one);
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (;;) {
        WriteFileAtomically(path, two);
        WriteFileAtomically(path, one);
      }
    }
    usleep(static_cast<useconds_t>(500 * i));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const std::string seen = ReadFile(path);
    EXPECT_TRUE(seen == one || seen == two) << seen.size();
  }
  WriteFileAtomically(path, "last");
  EXPECT_EQ(folder.Entries(), std::vector<std::string>{"a"});
}

}  // namespace
}  // namespace planish::lab
