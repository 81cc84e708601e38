#ifndef PLANISH_LAB_RUN_POSIX_FILE_H_
#define PLANISH_LAB_RUN_POSIX_FILE_H_

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "lab/error.h"

// System calls that the files of a run need and the standard library does not have. All of them are
// repeated when a signal interrupts them (EINTR).
namespace planish::lab {

/// Repeats a system call until no signal interrupts it. `close` must not be repeated: the
/// descriptor is released even where it reports EINTR.
template <class Call>
auto RetryInterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

/// A file descriptor that is closed when it goes out of scope.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int Release();
  int fd_ = -1;
};

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// Returns the system's text for `error`, a value of errno: "No space left on device".
std::string SystemReason(int error);

/// Returns "cannot write PATH: REASON" and "cannot read PATH: REASON".
RunError CannotWrite(const std::filesystem::path& path, const std::string& reason);
RunError CannotRead(const std::filesystem::path& path, const std::string& reason);

/// Opens a regular file to write it in place, created where `flags` has O_CREAT. Throws CannotWrite
/// for a symbolic link, a file with a second hard link, and anything that is not a regular file: a
/// file written through one of these could be somebody else's.
FileDescriptor OpenForWriting(const std::filesystem::path& path, int flags);

/// Reads a whole regular file. Throws CannotRead when it is of another kind or larger than
/// `max_bytes`.
std::string ReadRegularFile(const std::filesystem::path& path, int64_t max_bytes);

/// Returns whether `path` is the open file `fd`, and not a link to it: false once the file has been
/// removed, moved or replaced.
bool IsAt(const std::filesystem::path& path, int fd);

/// The reason in CannotWrite for a file that IsAt no longer finds.
inline constexpr char kNoLongerThere[] =
    "it was removed, moved or replaced while this process was using it";

/// Writes all of `bytes`. Returns false, with errno set, when the system refuses; the file can then
/// hold a part of them.
bool WriteAll(int fd, std::span<const std::byte> bytes);

/// Reads exactly `bytes.size()` bytes. Returns false when the file ends before or the system
/// refuses; errno is 0 in the first case.
bool ReadAll(int fd, std::span<std::byte> bytes);

/// Sets a file's size. Returns false with errno set.
bool Truncate(int fd, int64_t size);

/// Flushes a file's, or a folder's, contents to the disk. Returns false with errno set; a file
/// system that has no such operation counts as success.
bool SyncToDisk(int fd);

/// Flushes a folder's entries to the disk, so that a file created or renamed in it stays there.
bool SyncFolder(const std::filesystem::path& folder);

/// Takes the exclusive advisory lock of the open file `path`, which the kernel drops when the
/// descriptor is closed, also by the death of the process. With `wait` it waits for another holder,
/// else it returns false. Returns true on a file system without locks: the lock guards against
/// mistakes, and everything else still works. Throws RunError on any other failure.
bool LockFile(int fd, const std::filesystem::path& path, bool wait);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_POSIX_FILE_H_
