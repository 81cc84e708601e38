#ifndef PLANISH_SRC_BASE_FINGERPRINT_H_
#define PLANISH_SRC_BASE_FINGERPRINT_H_

#include <cstdint>

#include "planish/parallel.h"

namespace planish::internal {
inline namespace PLANISH_API {  // exported for the binding

/// Fingerprint of the bytes of an array.
struct Fingerprint {
  uint64_t first = 0;
  uint64_t second = 0;

  bool operator==(const Fingerprint&) const = default;
};

/// Returns the fingerprint of `size` bytes. It does not depend on the number of threads or the SIMD
/// target. Any two different arrays of the same size have the same fingerprint with a probability
/// below 2^-60. The hash is universal, with keys drawn at random once a process, so fingerprints of
/// two processes cannot be compared.
Fingerprint FingerprintOf(const void* data, int64_t size, const ParallelFor& parallel_for);

}  // namespace PLANISH_API
}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_FINGERPRINT_H_
