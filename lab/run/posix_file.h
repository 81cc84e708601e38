#ifndef PLANISH_LAB_RUN_POSIX_FILE_H_
#define PLANISH_LAB_RUN_POSIX_FILE_H_

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

// The few system calls that the files of a run need and the standard library does not have.
namespace planish::lab {

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

/// What the system says of `error`, a value of errno: "No space left on device".
std::string SystemReason(int error);

/// Writes all of `bytes`, going on after interruptions. False, with errno set, when the system
/// refuses; the file may then hold a part of them.
bool WriteAll(int fd, std::span<const std::byte> bytes);

/// Reads exactly `bytes.size()` bytes. False when the file ends before or the system refuses;
/// errno is 0 in the first case.
bool ReadAll(int fd, std::span<std::byte> bytes);

/// Brings a file's, or a folder's, contents to the disk. False with errno set; a file system that
/// has no such operation counts as done.
bool SyncToDisk(int fd);

/// Brings a folder's entries to the disk, so that a file created or renamed in it stays there.
bool SyncFolder(const std::filesystem::path& folder);

/// Takes the file's exclusive advisory lock, which the kernel drops when the descriptor is closed,
/// also by the death of the process. With `wait` it waits for another holder, else it returns
/// false. On a file system without locks it returns true: the lock guards against mistakes, and
/// without it everything else still works. Throws RunError on any other failure.
bool LockFile(int fd, bool wait);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_POSIX_FILE_H_
