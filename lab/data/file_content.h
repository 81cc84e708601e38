#ifndef PLANISH_LAB_DATA_FILE_CONTENT_H_
#define PLANISH_LAB_DATA_FILE_CONTENT_H_

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace planish::lab {

/// The bytes of a file in order, unpacked where it is a gzip stream, whatever its name. Every
/// member function throws DataError where the file cannot be read, is not a regular file, or is a
/// damaged gzip stream, one that ends early, or one with other bytes after it.
class FileContent {
 public:
  /// `function` is the one that the errors name.
  FileContent(std::filesystem::path file, std::string_view function);
  ~FileContent();
  FileContent(const FileContent&) = delete;
  FileContent& operator=(const FileContent&) = delete;

  bool is_gzip() const;

  /// No more bytes than this come out of the file, so that a size that a header claims can be
  /// refuted before memory is taken for it.
  int64_t UpperBound() const;

  /// Fills `out` as far as the content goes; the number of bytes written.
  int64_t Read(std::span<uint8_t> out);

  /// All that is left, but no more than `most` bytes.
  std::string Rest(int64_t most = std::numeric_limits<int64_t>::max());

 private:
  class Stream;
  std::unique_ptr<Stream> stream_;
};

/// The file called `name` or `name`.gz in `folder`; nothing where there is neither.
std::optional<std::filesystem::path> FindFile(const std::filesystem::path& folder,
                                              const std::string& name);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_FILE_CONTENT_H_
