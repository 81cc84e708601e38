#ifndef PLANISH_LAB_DATA_NPY_H_
#define PLANISH_LAB_DATA_NPY_H_

#include <cstdint>
#include <filesystem>
#include <vector>

namespace planish::lab {

/// An array of numbers.
struct NpyArray {
  std::vector<int64_t> shape;  ///< empty for a single number
  std::vector<float> values;   ///< the last index runs fastest
};

/// Reads a file in NumPy's format (numpy.lib.format, versions 1.0, 2.0 and 3.0), plain or gzip
/// whatever its name: little-endian reals of 16, 32 or 64 bits in C order, which become floats.
/// Throws DataError that names the file, what is wrong and at which byte of the content: another
/// magic string, version, type or order, a header that is no dictionary of descr, fortran_order and
/// shape, a shape that is none, fewer numbers than it says or bytes after them; and what
/// FileContent throws.
NpyArray ReadNpy(const std::filesystem::path& file);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_NPY_H_
