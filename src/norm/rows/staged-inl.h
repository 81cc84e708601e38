// Staging of narrow rows' results for non-temporal stores. Compiled once for each target, in
// namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_ROWS_STAGED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_ROWS_STAGED_INL_H_
#undef PLANISH_SRC_NORM_ROWS_STAGED_INL_H_
#else
#define PLANISH_SRC_NORM_ROWS_STAGED_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

// --- Tuning constants (docs/tuning.md) ---

/// Elements to collect before storing, so that loads do not closely follow stores to the same
/// addresses.
inline constexpr int64_t kStagedElements = 1024;

// --- End of tuning constants ---

#if HWY_MAX_BYTES >= 32 && HWY_TARGET != HWY_SCALAR

/// Buffer for results in address order, until whole aligned vectors can be stored with non-temporal
/// stores. It stores in bursts, or with StoreSome while the next inputs are read.
template <class T>
class Staged {
 public:
  /// Results go to `out` and the following addresses.
  explicit Staged(T* out)
      : skip_(static_cast<int64_t>((reinterpret_cast<uintptr_t>(out) & (kBytes - 1)) / sizeof(T))),
        fill_(skip_) {
    out_ = out - skip_;
  }

  /// Returns the address for the next results, up to kMaxResults, plus 8 elements that are ignored.
  HWY_INLINE T* next() { return buffer_ + fill_; }

  /// Adds `n` results.
  HWY_INLINE void Add(int64_t n) {
    fill_ += n;
    if (fill_ >= kStagedElements) Flush(false);
  }

  /// Stores about `n` pending elements. Spread between reads, stores use memory bandwidth that a
  /// burst leaves idle.
  HWY_INLINE void StoreSome(int64_t n) {
    if (fill_ < kLine) return;
    if (skip_ > 0) [[unlikely]] {
      Flush(false);
      return;
    }
    const int64_t end = std::min(stored_ / kLine + n / kLine + 1, fill_ / kLine) * kLine;
    StoreLines(stored_, end);
    stored_ = end;
    if (end + kLine > fill_) Rewind(end);
  }

  HWY_INLINE void Finish() { Flush(true); }

  /// Limit on the results that are written to next() before Add. Structural: only the size of the
  /// buffer depends on it.
  static constexpr int64_t kMaxResults = 1024;

 private:
  static constexpr int64_t kBytes = 64, kLine = kBytes / static_cast<int64_t>(sizeof(T));

  void Flush(bool all) {
    int64_t c = stored_;
    if (skip_ > 0) {  // the first line starts before `out`
      c = std::min(kLine, fill_);
      std::memcpy(out_ + skip_, buffer_ + skip_, static_cast<size_t>(c - skip_) * sizeof(T));
      skip_ = c == kLine ? 0 : c;
    }
    const int64_t end = std::max(c, fill_ / kLine * kLine);
    StoreLines(c, end);
    if (all) {
      std::memcpy(out_ + end, buffer_ + end, static_cast<size_t>(fill_ - end) * sizeof(T));
      return;
    }
    Rewind(end);
  }

  /// Stores the lines in [c, end).
  HWY_INLINE void StoreLines(int64_t c, int64_t end) {
    using D = hn::CappedTag<uint32_t, 8>;
    const D d;
    constexpr int64_t kStep = 8 * 4 / static_cast<int64_t>(sizeof(T));
    T* const out = out_;  // a local copy, else reloaded after each store
    for (; c < end; c += kStep) {
      hn::Stream(hn::LoadU(d, reinterpret_cast<const uint32_t*>(buffer_ + c)), d,
                 reinterpret_cast<uint32_t*>(out + c));
    }
  }

  /// Moves the pending elements from `c` on, less than a line, to the start.
  HWY_INLINE void Rewind(int64_t c) {
    std::memmove(buffer_, buffer_ + c, static_cast<size_t>(fill_ - c) * sizeof(T));
    out_ += c;
    fill_ -= c;
    stored_ = 0;
  }

  alignas(64) T buffer_[kStagedElements + kMaxResults + 64];
  T* out_;
  int64_t skip_, fill_, stored_ = 0;
};

#endif  // HWY_MAX_BYTES >= 32

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_ROWS_STAGED_INL_H_
