#ifndef PLANISH_SRC_NORM_FUZZ_H_
#define PLANISH_SRC_NORM_FUZZ_H_

#include <cstddef>
#include <cstdint>

namespace planish::tests {

/// Calls NormForward and NormBackward with arguments that the bytes describe: types, norm, shape,
/// strides, values, and arrays that are null, misaligned, in place or overlapping. Each call must
/// throw planish::Error and change nothing, or write all its outputs and nothing else, with results
/// that are plausible for its inputs. Throws std::logic_error otherwise.
void FuzzNorm(const uint8_t* data, size_t size);

}  // namespace planish::tests

#endif  // PLANISH_SRC_NORM_FUZZ_H_
