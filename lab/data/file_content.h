#ifndef PLANISH_LAB_DATA_FILE_CONTENT_H_
#define PLANISH_LAB_DATA_FILE_CONTENT_H_

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lab/data/byte_stream.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

/// Bytes of a data file in order. A gzip file is unpacked, whatever its name.
///
/// Member functions throw DataError, which names the file, if it cannot be read, is not regular, or
/// is a damaged or truncated gzip file, or unpacks to more than 64 MiB and 200 times its size. The
/// constructor also refuses other archives and compressed
/// formats (docs/data.md#compression).
class FileContent final : public ByteStream {
 public:
  explicit FileContent(std::filesystem::path file);
  ~FileContent() override;
  FileContent(const FileContent&) = delete;
  FileContent& operator=(const FileContent&) = delete;

  const std::filesystem::path& path() const override;
  bool is_packed() const override;  ///< true for a gzip file
  int64_t UpperBound() const override;
  int64_t Read(std::span<uint8_t> out) override;

  /// Returns the unread bytes, but at most `max_bytes` of them.
  std::string Rest(int64_t max_bytes = std::numeric_limits<int64_t>::max());

 private:
  class Stream;
  std::unique_ptr<Stream> stream_;
};

/// Open file and its size in bytes.
struct RegularFile {
  FileDescriptor fd;
  int64_t size = 0;
};

/// Opens a file for reading. Throws DataError naming it if it is missing, a folder, a device or a
/// pipe.
RegularFile OpenRegularFile(const std::filesystem::path& file);

/// Throws DataError: "cannot read FILE: REASON".
[[noreturn]] void FailToRead(const std::filesystem::path& file, const std::string& reason);

/// Throws DataError: "FILE, line LINE: REASON".
[[noreturn]] void FailAtLine(const std::filesystem::path& file, int64_t line,
                             const std::string& reason);

/// Returns read(). Turns std::bad_alloc into a DataError naming `file`.
template <class Function>
auto ReadInMemory(const std::filesystem::path& file, Function&& read) {
  try {
    return std::forward<Function>(read)();
  } catch (const std::bad_alloc&) {
    FailToRead(file, "not enough memory");
  }
}

/// Returns the file called `name`, or else `name`.gz, in `folder`; nullopt if neither exists.
std::optional<std::filesystem::path> FindFile(const std::filesystem::path& folder,
                                              const std::string& name);

/// Throws DataError: "FOLDER has no file NAME or NAME.gz".
[[noreturn]] void FailWithoutFile(const std::filesystem::path& folder, const std::string& name);

/// Returns FindFile's file. Throws like FailWithoutFile if there is none.
std::filesystem::path NeedFile(const std::filesystem::path& folder, const std::string& name);

/// Returns the format of the file's extension ("a zip archive") if it is an archive or compressed
/// file other than gzip.
std::optional<std::string_view> PackedByName(const std::filesystem::path& file);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_FILE_CONTENT_H_
