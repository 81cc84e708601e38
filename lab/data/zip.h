#ifndef PLANISH_LAB_DATA_ZIP_H_
#define PLANISH_LAB_DATA_ZIP_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "lab/data/byte_stream.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

/// Zip archive, as numpy.savez and numpy.savez_compressed write it: one disk, stored and deflated
/// members, zip64 or not, nothing before the first member.
class ZipArchive {
 public:
  /// Reads the directory. Throws DataError naming the file if it is not a zip archive, or is
  /// truncated or damaged.
  explicit ZipArchive(std::filesystem::path file);

  const std::filesystem::path& path() const { return path_; }

  /// Position of a member, from the directory.
  struct Member {
    int64_t header = 0;  ///< offset of the local header
    int64_t packed_size = 0;
    int64_t size = 0;
    uint32_t crc = 0;
    uint16_t method = 0;
    uint16_t flags = 0;
  };

  /// Returns name -> member.
  const std::map<std::string, Member>& members() const { return members_; }

  /// Returns the bytes of the member `name`, which must exist. The path of the stream is that of
  /// the archive, a slash, and the name. Its Read also checks the checksum at the end. Throws
  /// DataError if the member is encrypted, compressed by another method than deflate, beyond the
  /// archive's end, or unpacks to an absurd size (MaxUnpacked). The archive must outlive the
  /// stream.
  std::unique_ptr<ByteStream> Open(const std::string& name) const;

 private:
  void ReadDirectory();

  std::filesystem::path path_;
  FileDescriptor fd_;
  int64_t directory_ = 0;  // offset of the directory
  std::map<std::string, Member> members_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_ZIP_H_
