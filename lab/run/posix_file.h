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

// System calls for the files of a run that the standard library lacks. All repeat when a signal
// interrupts them (EINTR).
namespace planish::lab {

/// Repeats a system call until no signal interrupts it. Not for `close`, which releases the
/// descriptor even if it reports EINTR.
template <class Call>
auto RetryInterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || errno != EINTR) return result;
  }
}

/// File descriptor that is closed when it goes out of scope.
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

/// Returns "cannot write PATH: REASON" or "cannot read PATH: REASON".
RunError CannotWrite(const std::filesystem::path& path, const std::string& reason);
RunError CannotRead(const std::filesystem::path& path, const std::string& reason);

/// Opens a regular file for writing in place; creates it if `flags` has O_CREAT. Throws CannotWrite
/// for a symbolic link, a file with a second hard link, and anything but a regular file. These
/// could belong to somebody else.
FileDescriptor OpenForWriting(const std::filesystem::path& path, int flags);

/// Reads a whole regular file. Throws CannotRead for other kinds and for more than `max_bytes`.
std::string ReadRegularFile(const std::filesystem::path& path, int64_t max_bytes);

/// Like ReadRegularFile, for a file that decides what a program does. Also throws CannotRead for a
/// symbolic link, a file of another user than this one or root, and one that everybody can write.
std::string ReadOwnFile(const std::filesystem::path& path, int64_t max_bytes);

/// Returns true if `path` is the open file `fd` itself, not a link to it. Returns false once the
/// file has been removed, moved or replaced.
bool IsAt(const std::filesystem::path& path, int fd);

/// Reason in CannotWrite for a file that IsAt no longer finds.
inline constexpr char kNoLongerThere[] =
    "it was removed, moved or replaced while this process was using it";

/// Writes all of `bytes`. Returns false with errno set on failure; the file can then contain a part
/// of them.
bool WriteAll(int fd, std::span<const std::byte> bytes);

/// Reads exactly `bytes.size()` bytes. Returns false if the file ends before (errno is 0) or on
/// failure (errno is set).
bool ReadAll(int fd, std::span<std::byte> bytes);

/// Sets a file's size. Returns false with errno set on failure.
bool Truncate(int fd, int64_t size);

/// Flushes the contents of a file or folder to disk. Returns false with errno set on failure. A
/// file system without such an operation counts as success.
bool SyncToDisk(int fd);

/// Opens a folder. The result is false, with errno set, on failure.
FileDescriptor OpenFolder(const std::filesystem::path& folder);

/// Returns the folder of a file or folder: "." for a name alone.
std::filesystem::path FolderOf(const std::filesystem::path& path);

/// Flushes a folder's entries to disk, so that a file created or renamed in it stays there.
bool SyncFolder(const std::filesystem::path& folder);

/// Creates a folder unless it exists, and flushes its entry in the folder above to disk: a power
/// loss does not remove it with its files. Throws CannotWrite, and then leaves no new folder.
void CreateFolder(const std::filesystem::path& folder);

/// Like CreateFolder, but also creates missing folders above it.
void CreateFolders(const std::filesystem::path& folder);

/// Takes the exclusive advisory lock of the open file or folder `path`. The kernel releases it when
/// the descriptor is closed or the process dies. If another process has the lock, waits with
/// `wait`, otherwise returns false. Returns true on a file system without locks, because the lock
/// only guards against mistakes. Throws RunError on any other failure.
bool LockFile(int fd, const std::filesystem::path& path, bool wait);

/// Returns true if the file `path` is locked by LockFile. Has the lock for microseconds. Returns
/// false for a file that does not exist or cannot be opened.
bool IsLocked(const std::filesystem::path& path);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_POSIX_FILE_H_
