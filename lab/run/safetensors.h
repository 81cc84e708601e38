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

// The safetensors format: the header's length (8 bytes, little-endian); the header, a JSON object
// {name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {string: string}}; the
// tensors' bytes. Offsets are relative to the header's end and cover the data without overlap or
// gap. Files written here have a checksum in the metadata (docs/files.md), which other readers
// ignore.
namespace planish::lab {

/// Tensor of a safetensors file: contiguous, row-major, little-endian elements.
struct StoredTensor {
  std::string name;
  std::string dtype;  ///< F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL; others only when read
  std::vector<int64_t> shape;
  std::span<const std::byte> data;  ///< product(shape) elements
};

/// Requirement for reading a file without a checksum. A wrong checksum is always an error.
enum class Checksum { kIfPresent, kRequired };

/// Returns the bytes of an element of `dtype`, or 0 if it is not one of StoredTensor's.
int64_t DtypeWidth(std::string_view dtype);

/// Safetensors file in memory.
class SafetensorsFile {
 public:
  /// Reads and checks the whole file. Tensors of other dtypes than StoredTensor's (U16, F8_E4M3,
  /// ...) are accepted and found by name. Throws RunError naming the file and its first error.
  static SafetensorsFile Read(const std::filesystem::path& path,
                              Checksum checksum = Checksum::kIfPresent);

  /// Returns the tensors in the order of their bytes. `data` lives as long as this object. It is
  /// aligned to the element's width in files from WriteSafetensors.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }

  /// Returns the tensor of that name, or null.
  const StoredTensor* Find(std::string_view name) const;

  /// Returns the metadata without the checksum.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::unique_ptr<std::byte[]> data_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Writes `tensors` (widest elements first, by name within a width), `metadata` and the checksum
/// atomically (see WriteFileAtomically), without copying the data.
/// Throws RunError if a name is repeated, "__metadata__" or not UTF-8, or if a dtype is unknown.
/// Throws it also if a shape does not match its data, the header is larger than 100 MB, or the file
/// cannot be written.
void WriteSafetensors(const std::filesystem::path& path, std::span<const StoredTensor> tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_SAFETENSORS_H_
