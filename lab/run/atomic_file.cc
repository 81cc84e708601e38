#include "lab/run/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "lab/error.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

RunError CannotWrite(const fs::path& path, const std::string& reason) {
  return RunError("[WriteFileAtomically] " + path.string() +
                  " must be writable but has: " + reason);
}

// Opens the temporary and takes its lock. Whoever held the lock before has renamed or removed the
// file, so the name may by then stand for another one, or for none: then it begins again.
FileDescriptor OpenTemporary(const fs::path& temporary, const fs::path& path) {
  for (;;) {
    FileDescriptor fd(
        open(temporary.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
    if (!fd) throw CannotWrite(path, SystemReason(errno));
    LockFile(fd.get(), /*wait=*/true);
    struct stat held, named;
    if (fstat(fd.get(), &held) != 0) throw CannotWrite(path, SystemReason(errno));
    if (!S_ISREG(held.st_mode)) {
      throw CannotWrite(path, temporary.string() + ", which is not a regular file, in its way");
    }
    if (lstat(temporary.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
        held.st_dev == named.st_dev) {
      return fd;
    }
  }
}

}  // namespace

void WriteFileAtomically(const fs::path& path, std::span<const std::span<const std::byte>> pieces) {
  if (!path.has_filename()) throw CannotWrite(path, "no file name");
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path temporary = folder / ("." + path.filename().string() + ".tmp");
  const FileDescriptor fd = OpenTemporary(temporary, path);

  const auto write = [&] {
    if (ftruncate(fd.get(), 0) != 0) return false;
    for (const std::span<const std::byte> piece : pieces) {
      if (!WriteAll(fd.get(), piece)) return false;
    }
    return SyncToDisk(fd.get()) && std::rename(temporary.c_str(), path.c_str()) == 0;
  };
  if (!write()) {
    const int error = errno;
    unlink(temporary.c_str());
    throw CannotWrite(path, SystemReason(error));
  }
  if (!SyncFolder(folder)) throw CannotWrite(path, SystemReason(errno));
}

void WriteFileAtomically(const fs::path& path, std::string_view text) {
  const std::span<const std::byte> piece = AsBytes(text);
  WriteFileAtomically(path, std::span(&piece, 1));
}

}  // namespace planish::lab
