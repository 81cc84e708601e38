#ifndef PLANISH_SRC_BASE_FINGERPRINT_H_
#define PLANISH_SRC_BASE_FINGERPRINT_H_

#include <cstdint>

#include "planish/parallel.h"

namespace planish::internal {

/// A fingerprint of the bytes of an array.
struct Fingerprint {
  uint64_t first = 0;
  uint64_t second = 0;

  bool operator==(const Fingerprint&) const = default;
};

/// Returns the fingerprint of `size` bytes, which does not depend on threads or SIMD target.
///
/// Two arrays of one size and different bytes have the same fingerprint with probability below
/// 2^-60, whatever the bytes: the hash is universal, and its keys are drawn at random once in each
/// process. Fingerprints of two processes cannot be compared.
Fingerprint FingerprintOf(const void* data, int64_t size, const ParallelFor& parallel_for);

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_FINGERPRINT_H_
