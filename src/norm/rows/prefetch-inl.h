// Prefetch distances of the loops over rows. Compiled once for each target, in
// namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_ROWS_PREFETCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_ROWS_PREFETCH_INL_H_
#undef PLANISH_SRC_NORM_ROWS_PREFETCH_INL_H_
#else
#define PLANISH_SRC_NORM_ROWS_PREFETCH_INL_H_
#endif

#include <cstdint>

#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

// --- Tuning constants (docs/tuning.md) ---

/// Prefetch distances for rows in memory: a long one into the L2 cache, and a short one into the L1
/// cache. The L1 cache by itself has too few outstanding lines. With prefetches only into L2, short
/// loops would wait for it.
inline constexpr int64_t kPrefetchFarBytes = 16384, kPrefetchNearBytes = 2048;

/// Prefetch distance for outputs, whose lines are read before they are written.
inline constexpr int64_t kPrefetchOutputBytes = 4096;

// --- End of tuning constants ---

HWY_INLINE void PrefetchFar(const void* line) { __builtin_prefetch(line, 0, 2); }
HWY_INLINE void PrefetchNear(const void* line) { __builtin_prefetch(line, 0, 3); }

/// Prefetches into L2 and L1 ahead of `n` elements from `at`, in memory that is read in order. If
/// memory is read in pieces, the next piece begins `far` bytes further on.
template <class T>
HWY_INLINE void PrefetchAhead(const T* at, int64_t n, int64_t far = kPrefetchFarBytes) {
  const auto* line = reinterpret_cast<const char*>(at);
  for (int64_t byte = 0; byte < n * static_cast<int64_t>(sizeof(T)); byte += 64) {
    PrefetchFar(line + byte + far);
    PrefetchNear(line + byte + kPrefetchNearBytes);
  }
}

/// Prefetches into the L2 cache only, for loops whose own loads are far apart.
template <class T>
HWY_INLINE void PrefetchFarAhead(const T* at, int64_t n) {
  const auto* line = reinterpret_cast<const char*>(at);
  for (int64_t byte = 0; byte < n * static_cast<int64_t>(sizeof(T)); byte += 64) {
    PrefetchFar(line + byte + kPrefetchFarBytes);
  }
}

/// Prefetches the lines of outputs ahead of `n` elements from `at`.
template <class T>
HWY_INLINE void PrefetchOutput(const T* at, int64_t n) {
  const auto* line = reinterpret_cast<const char*>(at);
  for (int64_t byte = 0; byte < n * static_cast<int64_t>(sizeof(T)); byte += 64) {
    PrefetchFar(line + byte + kPrefetchOutputBytes);
  }
}

/// Prefetches two vectors, as PrefetchAhead.
template <class D, class T>
HWY_INLINE void PrefetchTwo(D, const T* at, int64_t far = kPrefetchFarBytes) {
  PrefetchAhead(at, 2 * hn::MaxLanes(D()), far);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_ROWS_PREFETCH_INL_H_
