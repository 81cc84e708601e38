#include "lab/run/posix_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "lab/base/escape.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

FileDescriptor Open(const fs::path& path, int flags) {
  return FileDescriptor(
      RetryInterrupted([&] { return open(path.c_str(), flags | O_CLOEXEC, 0666); }));
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.Release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

int FileDescriptor::Release() { return std::exchange(fd_, -1); }

std::string SystemReason(int error) { return std::generic_category().message(error); }

RunError CannotWrite(const fs::path& path, const std::string& reason) {
  return RunError(fmt::format("cannot write {}: {}", Escaped(path.string()), reason));
}

RunError CannotRead(const fs::path& path, const std::string& reason) {
  return RunError(fmt::format("cannot read {}: {}", Escaped(path.string()), reason));
}

FileDescriptor OpenForWriting(const fs::path& path, int flags) {
  // Without O_NONBLOCK, opening a FIFO would wait for a reader.
  FileDescriptor fd = Open(path, flags | O_NOFOLLOW | O_NONBLOCK);
  if (!fd && errno == ELOOP) throw CannotWrite(path, "it is a symbolic link");
  struct stat status;
  if (!fd || fstat(fd.get(), &status) != 0) throw CannotWrite(path, SystemReason(errno));
  if (!S_ISREG(status.st_mode)) throw CannotWrite(path, "it is not a regular file");
  if (status.st_nlink > 1) throw CannotWrite(path, "it has a second name (a hard link)");
  return fd;
}

namespace {

// Reads the open regular file `path`. `status` becomes its fstat.
std::string ReadOpenFile(const FileDescriptor& fd, const fs::path& path, int64_t max_bytes,
                         struct stat& status) {
  if (!fd || fstat(fd.get(), &status) != 0) throw CannotRead(path, SystemReason(errno));
  if (!S_ISREG(status.st_mode)) throw CannotRead(path, "it is not a regular file");
  if (status.st_size > max_bytes) {
    throw CannotRead(
        path, fmt::format("it has {} bytes, and {} are the limit", status.st_size, max_bytes));
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  if (!ReadAll(fd.get(), std::as_writable_bytes(std::span(text)))) {
    throw CannotRead(path,
                     errno == 0 ? "it became shorter while it was read" : SystemReason(errno));
  }
  return text;
}

}  // namespace

std::string ReadRegularFile(const fs::path& path, int64_t max_bytes) {
  struct stat status;
  return ReadOpenFile(Open(path, O_RDONLY | O_NONBLOCK), path, max_bytes, status);
}

std::string ReadOwnFile(const fs::path& path, int64_t max_bytes) {
  const FileDescriptor fd = Open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  if (!fd && errno == ELOOP) throw CannotRead(path, "it is a symbolic link");
  struct stat status;
  std::string text = ReadOpenFile(fd, path, max_bytes, status);
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    throw CannotRead(path, "it belongs to another user");
  }
  if ((status.st_mode & S_IWOTH) != 0) throw CannotRead(path, "everybody can write it");
  return text;
}

bool IsAt(const fs::path& path, int fd) {
  struct stat opened, named;
  return fstat(fd, &opened) == 0 && lstat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

bool WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = RetryInterrupted([&] { return write(fd, bytes.data(), bytes.size()); });
    if (written < 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

bool ReadAll(int fd, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = RetryInterrupted([&] { return read(fd, bytes.data(), bytes.size()); });
    if (count < 0) return false;
    if (count == 0) {
      errno = 0;
      return false;
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return true;
}

bool Truncate(int fd, int64_t size) {
  return RetryInterrupted([&] { return ftruncate(fd, size); }) == 0;
}

bool SyncToDisk(int fd) {
  return RetryInterrupted([&] { return fsync(fd); }) == 0 || errno == EINVAL || errno == ENOTSUP;
}

fs::path FolderOf(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

FileDescriptor OpenFolder(const fs::path& folder) { return Open(folder, O_RDONLY | O_DIRECTORY); }

bool SyncFolder(const fs::path& folder) {
  const FileDescriptor fd = OpenFolder(folder);
  return fd && SyncToDisk(fd.get());
}

void CreateFolder(const fs::path& folder) {
  std::error_code error;
  const bool is_new = fs::create_directory(folder, error);
  if (error) throw CannotWrite(folder, error.message());
  // A folder that this user cannot read cannot be flushed.
  if (!is_new || SyncFolder(FolderOf(folder)) || errno == EACCES) return;
  const int reason = errno;
  rmdir(folder.c_str());
  throw CannotWrite(folder, SystemReason(reason));
}

void CreateFolders(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (fs::is_directory(status)) return;
  if (fs::exists(status)) throw CannotWrite(folder, SystemReason(ENOTDIR));
  if (status.type() != fs::file_type::not_found) throw CannotWrite(folder, error.message());
  if (folder.has_parent_path()) CreateFolders(folder.parent_path());
  const fs::path name = folder.filename();
  if (!name.empty() && name != "." && name != "..") CreateFolder(folder);
}

bool LockFile(int fd, const fs::path& path, bool wait) {
  if (RetryInterrupted([&] { return flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)); }) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  if (errno == ENOSYS || errno == ENOTSUP || errno == ENOLCK) return true;
  throw RunError(fmt::format("cannot lock {}: {}", Escaped(path.string()), SystemReason(errno)));
}

bool IsLocked(const fs::path& path) {
  if (std::error_code error; !fs::exists(path, error)) return false;
  const FileDescriptor fd = Open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  return fd && RetryInterrupted([&] { return flock(fd.get(), LOCK_SH | LOCK_NB); }) != 0 &&
         errno == EWOULDBLOCK;
}

}  // namespace planish::lab
