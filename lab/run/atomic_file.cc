#include "lab/run/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>

#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Opens and locks the temporary file. An earlier holder of the lock can have renamed or removed it;
// then this starts again.
FileDescriptor OpenTemporary(const fs::path& temporary) {
  for (;;) {
    FileDescriptor fd = OpenForWriting(temporary, O_RDWR | O_CREAT);
    LockFile(fd.get(), temporary, /*wait=*/true);
    if (IsAt(temporary, fd.get())) return fd;
  }
}

// Throws if `path` is not a regular file: renaming would replace a device.
void CheckReplaceable(const fs::path& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return;
  if (S_ISDIR(status.st_mode)) throw CannotWrite(path, SystemReason(EISDIR));
  if (!S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) {
    throw CannotWrite(path, "it is not a regular file");
  }
}

// Returns a descriptor for an existing file that must be written in place, or nullopt.
std::optional<FileDescriptor> OpenInPlace(const fs::path& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || S_ISDIR(status.st_mode)) return std::nullopt;
  const bool regular = S_ISREG(status.st_mode);
  for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own;
    if ((regular || S_ISSOCK(status.st_mode)) && fstat(standard, &own) == 0 &&
        own.st_ino == status.st_ino && own.st_dev == status.st_dev) {
      return FileDescriptor(fcntl(standard, F_DUPFD_CLOEXEC, 0));
    }
  }
  if (regular) return std::nullopt;
  return FileDescriptor(
      RetryInterrupted([&] { return open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC); }));
}

// Throws UsageError if `path` is a file of a run, which an output would destroy.
void RefuseFileOfRun(const fs::path& path) {
  const std::string name = path.filename().string();
  const fs::path folder = FolderOf(path);
  const bool is_checkpoint = name == "state.safetensors" && folder.filename() == "checkpoint";
  const bool is_of_run = name == "config.json" || name == "metrics.jsonl" ||
                         name == "result.json" || name == ".lock" ||
                         name.starts_with("events.out.");
  std::error_code error;
  if ((is_of_run && fs::exists(folder / "config.json", error)) ||
      (is_checkpoint && fs::exists(FolderOf(folder) / "config.json", error))) {
    throw UsageError(
        fmt::format("[output] the file must not be one of a run, got {}", path.string()));
  }
}

}  // namespace

void WriteFileAtomically(const fs::path& path, std::span<const std::span<const std::byte>> pieces) {
  if (!path.has_filename()) throw CannotWrite(path, "no file name");
  const fs::path folder = FolderOf(path);
  if (std::error_code error; !fs::is_directory(folder, error)) {
    throw CannotWrite(path, error ? error.message() : SystemReason(ENOTDIR));
  }
  CheckReplaceable(path);
  const fs::path temporary = folder / ("." + path.filename().string() + ".tmp");
  const FileDescriptor fd = OpenTemporary(temporary);

  const auto write = [&] {
    if (!Truncate(fd.get(), 0)) return false;
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

void WriteOutputFile(const fs::path& path, std::string_view text) {
  if (const std::optional<FileDescriptor> fd = OpenInPlace(path)) {
    if (!*fd || !WriteAll(fd->get(), AsBytes(text))) throw CannotWrite(path, SystemReason(errno));
    return;
  }
  WriteFileAtomically(OutputTarget(path), text);
}

fs::path OutputTarget(const fs::path& path) {
  constexpr int kMaxLinks = 40;  // the kernel's own limit
  fs::path target = path;
  std::error_code error;
  for (int links = 0; fs::is_symlink(target, error); ++links) {
    if (links == kMaxLinks) throw CannotWrite(path, SystemReason(ELOOP));
    target = FolderOf(target) / fs::read_symlink(target, error);
    if (error) throw CannotWrite(path, error.message());
  }
  RefuseFileOfRun(target);
  return target;
}

}  // namespace planish::lab
