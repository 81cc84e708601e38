#ifndef PLANISH_LAB_RUN_SAFETENSORS_H_
#define PLANISH_LAB_RUN_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The safetensors format: 8 bytes, the length of the header, little-endian; the header, a JSON
// object {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {string:
// string}}; the tensors' bytes, which the offsets (from the header's end) cover without overlap or
// hole.
//
// A file written here carries a checksum that other readers ignore: the metadata
// "planish.crc32" is the CRC-32 (zlib's), as eight lower-case hexadecimal digits, of the whole file
// with these digits as zeros.
namespace planish::lab {

/// A tensor of a safetensors file: contiguous, row-major, elements little-endian.
struct StoredTensor {
  std::string name;
  std::string dtype;  ///< F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL; when read, also others
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  ///< product(shape) elements
};

/// Whether a file without a checksum is read. A wrong checksum is always an error.
enum class Checksum { kIfPresent, kRequired };

/// The bytes of an element of `dtype`, or 0 when the format's name is not one of StoredTensor's.
int64_t DtypeWidth(std::string_view dtype);

/// A safetensors file in memory.
class SafetensorsFile {
 public:
  /// Reads and checks the whole file. A tensor of a dtype that is not among StoredTensor's (U16,
  /// F8_E4M3, ...) is no fault: it is there by name, and the caller refuses it if it is wanted.
  /// Throws RunError naming the file and its first fault.
  static SafetensorsFile Read(const std::filesystem::path& path,
                              Checksum checksum = Checksum::kIfPresent);

  /// The tensors in the order of their bytes; `data` lives as long as this object, and is aligned
  /// to the element's width in files written by WriteSafetensors.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

  /// The tensor of that name, or null.
  const StoredTensor* Find(std::string_view name) const;

  /// The metadata without the checksum.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Writes `tensors`, widest elements first and by name within a width, `metadata` and the checksum,
/// atomically (see WriteFileAtomically) and without a second copy of the data. Throws RunError when
/// two tensors have one name, one is called "__metadata__", a name is not UTF-8, a dtype unknown, a
/// shape does not fit its data, the header is larger than 100 MB, or the file not writable.
void WriteSafetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_SAFETENSORS_H_
