#ifndef PLANISH_SRC_NORM_FUZZ_H_
#define PLANISH_SRC_NORM_FUZZ_H_

#include <cstddef>
#include <cstdint>

namespace planish::tests {

/// Calls NormForward and NormBackward with what the bytes describe: types, norm, shape, strides,
/// numbers, arrays that are missing, misaligned, in place or in each other's way. Each call must
/// throw planish::Error and change nothing, or write all of its outputs, nothing beside them, and
/// what agrees with its inputs as far as one can tell without computing it. Throws
/// std::logic_error where it does not.
void FuzzNorm(const uint8_t* data, size_t size);

}  // namespace planish::tests

#endif  // PLANISH_SRC_NORM_FUZZ_H_
