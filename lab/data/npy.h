#ifndef PLANISH_LAB_DATA_NPY_H_
#define PLANISH_LAB_DATA_NPY_H_

#include <cstdint>
#include <filesystem>
#include <vector>

#include "lab/data/byte_stream.h"

namespace planish::lab {

/// Array of elements of type T.
template <class T>
struct NpyElements {
  std::vector<int64_t> shape;  ///< empty for a scalar
  std::vector<T> values;       ///< row-major
};
using NpyArray = NpyElements<float>;

/// Reads a file in NumPy's format (numpy.lib.format, versions 1.0, 2.0 and 3.0), plain or gzip
/// whatever its name. Elements must be little-endian floats of 16, 32 or 64 bits in C order; they
/// are converted to float. Throws DataError naming the file, the error and its byte offset if the
/// file is malformed or has another type, order or size. Also throws like FileContent.
NpyArray ReadNpy(const std::filesystem::path& file);

/// Like ReadNpy, for pixels: unsigned bytes, or floats that are rounded to them. Floats of at most
/// 1 have the range 0 to 1, others 0 to 255. Throws DataError naming the index of a value that is
/// not finite, negative or above 255.
NpyElements<uint8_t> ReadNpyPixels(const std::filesystem::path& file);
NpyElements<uint8_t> ReadNpyPixels(ByteStream& content);

/// Like ReadNpy, for integers of 8, 16, 32 or 64 bits, signed or, up to 32 bits, unsigned.
NpyElements<int64_t> ReadNpyIntegers(const std::filesystem::path& file);
NpyElements<int64_t> ReadNpyIntegers(ByteStream& content);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_NPY_H_
