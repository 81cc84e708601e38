// Library for LD_PRELOAD that lets one system call on the files below a folder fail:
// tests/python/test_faults.py. All other calls behave as always. Variables of the environment:
//   PLANISH_FAULTS         file with a State, which the test writes; processes share its counter
//   PLANISH_FAULTS_FOLDER  only calls on files in this folder fail; absolute, without links
#undef _FORTIFY_SOURCE  // would define some of these functions inline
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

// Value of State::error: the call writes half of its bytes, and the next write fails with ENOSPC.
constexpr int64_t kShortWrite = -1;

// The test reads and writes these bytes.
struct State {
  int64_t error;               // errno of the fault, or kShortWrite
  int64_t target;              // number of the call that fails, from 1; 0: none
  std::atomic<int64_t> calls;  // calls so far that the fault can occur in
  std::atomic<int64_t> next_write_fails;
  char call[16];  // the call that failed: its name, or "read" for an open only for reading
  char path[4080];
};
static_assert(std::atomic<int64_t>::is_always_lock_free);

// Returns the state, or null if the test wants no faults. The server that starts commands
// (lab/testing/server.cc) sets the variables only in its children.
State* FindState() {
  static State* state = nullptr;
  if (state != nullptr) return state;
  const char* const name = std::getenv("PLANISH_FAULTS");
  if (name == nullptr) return nullptr;
  const long fd = syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC);
  void* const bytes =
      mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, static_cast<int>(fd), 0);
  if (bytes == MAP_FAILED) std::abort();
  syscall(SYS_close, fd);
  return state = static_cast<State*>(bytes);
}

std::string PathOf(int fd) {
  std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (fd == AT_FDCWD) link = "/proc/self/cwd";
  std::string path(PATH_MAX, '\0');
  const ssize_t size = readlink(link.c_str(), path.data(), path.size());
  path.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return path;
}

std::string PathOf(int folder, const char* path) {
  return path[0] == '/' ? path : PathOf(folder) + "/" + path;
}

bool IsBelowFolder(const std::string& path) {
  static const char* const folder = std::getenv("PLANISH_FAULTS_FOLDER");
  return folder != nullptr && path.starts_with(folder) &&
         (path.size() == std::strlen(folder) || path[std::strlen(folder)] == '/');
}

enum class Fault { kNone, kError, kShort };

// Counts a call. Returns the fault that it must have, with errno set. `path()` names the file.
// Calls that read have only the fault EIO: a full disk can be read.
template <class Path>
Fault Next(const char* call, bool reads, const Path& path) {
  const int old_errno = errno;
  State* const state = FindState();
  if (state == nullptr) return Fault::kNone;
  const bool is_write = std::strcmp(call, "write") == 0;
  const bool occurs = state->error == EIO || (state->error == kShortWrite ? is_write : !reads);
  if (!occurs) return Fault::kNone;
  const std::string name = path();
  errno = old_errno;
  if (!IsBelowFolder(name)) return Fault::kNone;
  if (is_write && state->next_write_fails.exchange(0) != 0) {
    errno = ENOSPC;
    return Fault::kError;
  }
  if (++state->calls != state->target) return Fault::kNone;
  std::strncpy(state->call, reads ? "read" : call, sizeof(state->call) - 1);
  std::strncpy(state->path, name.c_str(), sizeof(state->path) - 1);
  if (state->error == kShortWrite) {
    state->next_write_fails = 1;
    return Fault::kShort;
  }
  errno = static_cast<int>(state->error);
  return Fault::kError;
}

int OpenAt(int folder, const char* path, int flags, int mode) {
  const bool reads = (flags & (O_ACCMODE | O_CREAT)) == O_RDONLY;
  if (Next("open", reads, [&] { return PathOf(folder, path); }) != Fault::kNone) return -1;
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

ssize_t Read(int fd, void* bytes, size_t count, const off_t* offset) {
  if (Next("read", true, [&] { return PathOf(fd); }) != Fault::kNone) return -1;
  if (offset != nullptr) return syscall(SYS_pread64, fd, bytes, count, *offset);
  return syscall(SYS_read, fd, bytes, count);
}

ssize_t Write(int fd, const void* bytes, size_t count, const off_t* offset) {
  const Fault fault = Next("write", false, [&] { return PathOf(fd); });
  if (fault == Fault::kError) return -1;
  if (fault == Fault::kShort) count = (count + 1) / 2;
  if (offset != nullptr) return syscall(SYS_pwrite64, fd, bytes, count, *offset);
  return syscall(SYS_write, fd, bytes, count);
}

}  // namespace

extern "C" {

int openat(int folder, const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return OpenAt(folder, path, flags, mode);
}
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(arguments, int) : 0;
  va_end(arguments);
  return OpenAt(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));
ssize_t read(int fd, void* bytes, size_t count) { return Read(fd, bytes, count, nullptr); }
ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  return Read(fd, bytes, count, &offset);
}
ssize_t write(int fd, const void* bytes, size_t count) { return Write(fd, bytes, count, nullptr); }
ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  return Write(fd, bytes, count, &offset);
}
int fsync(int fd) {
  if (Next("fsync", false, [&] { return PathOf(fd); }) != Fault::kNone) return -1;
  return static_cast<int>(syscall(SYS_fsync, fd));
}
int fdatasync(int fd) {
  if (Next("fsync", false, [&] { return PathOf(fd); }) != Fault::kNone) return -1;
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}
int ftruncate(int fd, off_t size) noexcept {
  if (Next("ftruncate", false, [&] { return PathOf(fd); }) != Fault::kNone) return -1;
  return static_cast<int>(syscall(SYS_ftruncate, fd, size));
}
// Closes the file also if it reports a failure, as Linux does.
int close(int fd) {
  const Fault fault = Next("close", false, [&] { return PathOf(fd); });
  const int error = errno;
  const long result = syscall(SYS_close, fd);
  if (fault == Fault::kNone) return static_cast<int>(result);
  errno = error;
  return -1;
}
int rename(const char* from, const char* to) noexcept {
  if (Next("rename", false, [&] { return PathOf(AT_FDCWD, to); }) != Fault::kNone) return -1;
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int mkdir(const char* path, mode_t mode) noexcept {
  if (Next("mkdir", false, [&] { return PathOf(AT_FDCWD, path); }) != Fault::kNone) return -1;
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int unlink(const char* path) noexcept {
  if (Next("unlink", false, [&] { return PathOf(AT_FDCWD, path); }) != Fault::kNone) return -1;
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

}  // extern "C"
