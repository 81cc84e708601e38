// Replaces system calls by ones that are interrupted or fail.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <string>
#include <utility>

#include "lab/error.h"
#include "lab/run/atomic_file.h"
#include "lab/run/events.h"
#include "lab/run/posix_file.h"
#include "lab/run/results.h"
#include "lab/run/writer.h"
#include "lab/testing/test_folder.h"

namespace {

// Lets `times` calls of `name` fail with `error`, after `skipped` calls.
struct Fault {
  std::string name;
  int error = 0;
  int times = 0;
  int met = 0;
  int skipped = 0;
} fault;

bool Fails(const char* name) {
  if (fault.times == 0 || fault.name != name || fault.skipped-- > 0) return false;
  --fault.times;
  ++fault.met;
  errno = fault.error;
  return true;
}

}  // namespace

extern "C" {
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & O_CREAT) != 0 ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return Fails("open") ? -1 : static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
// The standard library opens the folders that it lists with openat.
int openat(int folder, const char* path, int flags, ...) {
  return Fails("openat") ? -1 : static_cast<int>(syscall(SYS_openat, folder, path, flags));
}
ssize_t read(int fd, void* bytes, size_t count) {
  return Fails("read") ? -1 : syscall(SYS_read, fd, bytes, count);
}
ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  return Fails("pread") ? -1 : syscall(SYS_pread64, fd, bytes, count, offset);
}
ssize_t write(int fd, const void* bytes, size_t count) {
  return Fails("write") ? -1 : syscall(SYS_write, fd, bytes, count);
}
int fsync(int fd) { return Fails("fsync") ? -1 : static_cast<int>(syscall(SYS_fsync, fd)); }
int ftruncate(int fd, off_t size) noexcept {
  return Fails("ftruncate") ? -1 : static_cast<int>(syscall(SYS_ftruncate, fd, size));
}
int flock(int fd, int operation) noexcept {
  return Fails("flock") ? -1 : static_cast<int>(syscall(SYS_flock, fd, operation));
}
}

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class SystemCalls : public ::testing::Test {
 protected:
  ~SystemCalls() override { fault = {}; }
  TestFolder folder;
};

TEST_F(SystemCalls, InterruptedOnesAreRepeated) {
  for (const char* name : {"open", "write", "fsync", "ftruncate", "flock"}) {
    fault = {name, EINTR, 3};
    WriteFileAtomically(folder / "a", name);
    EXPECT_EQ(fault.met, 3) << name;
    EXPECT_EQ(ReadRegularFile(folder / "a", 100), name);
  }
  for (const char* name : {"open", "read"}) {
    fault = {name, EINTR, 3};
    EXPECT_EQ(ReadRegularFile(folder / "a", 100), "flock");
    EXPECT_EQ(fault.met, 3) << name;
  }
}

TEST_F(SystemCalls, InterruptedOnesOfARunAreRepeated) {
  for (const char* name : {"open", "write", "fsync", "ftruncate", "flock"}) {
    const fs::path run = folder / name;
    fault = {name, EINTR, 2};
    RunWriter writer(run);
    EXPECT_EQ(fault.met, 2) << name;
    fault = {name, EINTR, 2};
    writer.WriteConfig({});
    writer.Append({.step = 1});
    writer.Sync();
    EXPECT_EQ(fault.met, 2) << name;
    fault = {name, EINTR, 2};
    EventWriter(run).Scalars(1, {{"a", 1}});
    fault = {};
    EXPECT_EQ(ReadRun(run).evaluations.size(), 1u);
  }
}

// Each new folder is flushed into the one above it, and is not left if that fails.
TEST_F(SystemCalls, NewFoldersAreFlushed) {
  const fs::path run = folder / "a/b/run";
  for (const auto& [skipped, name] :
       {std::pair(0, "a"), std::pair(1, "a/b"), std::pair(2, "a/b/run")}) {
    fs::remove_all(folder / "a");
    fault = {.name = "fsync", .error = EIO, .times = 1, .skipped = skipped};
    EXPECT_THAT([&] { RunWriter{run}; },
                ThrowsMessage<RunError>("cannot write " + (folder / name).string() +
                                        ": Input/output error"));
    EXPECT_EQ(fault.met, 1);
    EXPECT_FALSE(fs::exists(folder / name));
  }
  {
    const RunWriter writer(run);
  }
  fault = {"fsync", EIO, 1};
  const RunWriter writer(run);  // no folder is new
  EXPECT_EQ(fault.met, 0);
}

// A folder with write permission only cannot be opened for reading.
TEST_F(SystemCalls, AFolderThatMustNotBeReadIsNotFlushed) {
  fault = {"open", EACCES, 1};
  CreateFolders(folder / "a/.//b/");
  EXPECT_EQ(fault.met, 1);
  EXPECT_TRUE(fs::is_directory(folder / "a/b"));
}

TEST_F(SystemCalls, FailuresNameTheLock) {
  const auto says = [&](const char* reason) {
    return ThrowsMessage<RunError>(
        AllOf(HasSubstr((folder / "run/.lock").string()), HasSubstr(reason)));
  };
  fault = {"flock", EIO, 1};
  EXPECT_THAT([&] { RunWriter(folder / "run"); }, says("cannot lock"));
  fault = {"write", ENOSPC, 1};
  EXPECT_THAT([&] { RunWriter(folder / "run"); }, says("No space left on device"));
  fault = {"ftruncate", EIO, 1};
  EXPECT_THAT([&] { RunWriter(folder / "run"); }, says("Input/output error"));
  const RunWriter writer(folder / "run");
}

// Some file systems, such as network ones, have no locks.
TEST_F(SystemCalls, AFileSystemWithoutLocksIsNoFailure) {
  fault = {"flock", ENOLCK, 1};
  const RunWriter writer(folder / "run");
}

// Another process can have the lock for a moment, to test it.
TEST_F(SystemCalls, ALockThatIsSoonFreeIsNoFailure) {
  fault = {"flock", EWOULDBLOCK, 3};
  const RunWriter writer(folder / "run");
  EXPECT_EQ(fault.met, 3);
}

TEST_F(SystemCalls, FailuresLeaveTheOldFileAndNameIt) {
  for (const char* name : {"write", "fsync", "ftruncate"}) {
    WriteFileAtomically(folder / "a", "old");
    fault = {name, EIO, 1};
    EXPECT_THAT([&] { WriteFileAtomically(folder / "a", "new"); },
                ThrowsMessage<RunError>(AllOf(HasSubstr("cannot write " + (folder / "a").string()),
                                              HasSubstr("Input/output error"))))
        << name;
    EXPECT_EQ(ReadFile(folder / "a"), "old");
    EXPECT_EQ(folder.Entries(), std::vector<std::string>{"a"});
  }
  fault = {"read", EIO, 1};
  EXPECT_THAT([&] { ReadRegularFile(folder / "a", 100); },
              ThrowsMessage<RunError>(HasSubstr("cannot read " + (folder / "a").string())));
}

TEST_F(SystemCalls, FailuresOfMetricsNameTheFile) {
  RunWriter writer(folder.path());
  writer.Append({.step = 1});
  const auto says = [&](const char* reason) {
    return ThrowsMessage<RunError>(
        AllOf(HasSubstr((folder / "metrics.jsonl").string()), HasSubstr(reason)));
  };
  fault = {"write", ENOSPC, 1};
  EXPECT_THAT([&] { writer.Append({.step = 2}); }, says("No space left on device"));
  fault = {"fsync", EIO, 1};
  EXPECT_THAT([&] { writer.Sync(); }, says("Input/output error"));
  writer.Append({.step = 3});
  EXPECT_EQ(ReadEvaluationLines(folder / "metrics.jsonl").size(), 2u);
}

TEST_F(SystemCalls, AFolderThatCannotBeListedIsNamed) {
  fs::create_directories(folder / "a/b");
  for (const auto& [skipped, name] : {std::pair(0, "a"), std::pair(1, "a/b")}) {
    fault = {.name = "openat", .error = EIO, .times = 1, .skipped = skipped};
    EXPECT_THAT([&] { FindRuns({folder / "a"}); },
                ThrowsMessage<RunError>("cannot read " + (folder / name).string() +
                                        ": Input/output error"));
  }
}

// Otherwise the next line would be appended to the partial line.
TEST_F(SystemCalls, APartialLineThatCannotBeReadIsAnError) {
  WriteFile(folder / "metrics.jsonl", "{\"ste");
  RunWriter writer(folder.path());
  fault = {"pread", EIO, 1};
  EXPECT_THAT(
      [&] { writer.Append({.step = 1}); },
      ThrowsMessage<RunError>(AllOf(HasSubstr("cannot read " + (folder / "metrics.jsonl").string()),
                                    HasSubstr("Input/output error"))));
  fault = {"pread", EINTR, 3};
  writer.Append({.step = 1});
  EXPECT_EQ(ReadEvaluationLines(folder / "metrics.jsonl").size(), 1u);
}

}  // namespace
}  // namespace planish::lab
