#ifndef PLANISH_LAB_DATA_BYTE_STREAM_H_
#define PLANISH_LAB_DATA_BYTE_STREAM_H_

#include <cstdint>
#include <filesystem>
#include <span>

namespace planish::lab {

/// Unpacked bytes of a data file, or of a part of one, in order. Member functions throw DataError
/// naming the path if the bytes cannot be read or unpacked.
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  /// Returns the path that errors name.
  virtual const std::filesystem::path& path() const = 0;

  /// Returns true if the bytes are compressed in the file.
  virtual bool is_packed() const = 0;

  /// Returns an upper bound of the number of bytes, to reject a size in a header before allocating
  /// memory for it.
  virtual int64_t UpperBound() const = 0;

  /// Fills `out` as far as there are bytes. Returns the number of bytes written.
  virtual int64_t Read(std::span<uint8_t> out) = 0;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_BYTE_STREAM_H_
