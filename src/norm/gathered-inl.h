// Results of narrow rows on their way past the caches. Compiled once for each target, in the
// namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_GATHERED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_GATHERED_INL_H_
#undef PLANISH_SRC_NORM_GATHERED_INL_H_
#else
#define PLANISH_SRC_NORM_GATHERED_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "src/norm/rows-inl.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {

#if HWY_MAX_BYTES >= 32 && HWY_TARGET != HWY_SCALAR

/// Results in the order of their addresses, gathered until whole aligned vectors can be stored past
/// the caches.
template <class T>
class Gathered {
 public:
  /// What is gathered goes to `out` and on.
  explicit Gathered(T* out)
      : skip_(static_cast<int64_t>((reinterpret_cast<uintptr_t>(out) & (kBytes - 1)) / sizeof(T))),
        fill_(skip_) {
    out_ = out - skip_;
  }

  /// Where the next results go, up to kMost, and 8 more that do not count.
  HWY_INLINE T* next() { return buffer_ + fill_; }

  /// There are `n` more.
  HWY_INLINE void Add(int64_t n) {
    fill_ += n;
    if (fill_ >= kEnough) Flush(false);
  }

  HWY_INLINE void Finish() { Flush(true); }

  static constexpr int64_t kMost = 1024;

 private:
  static constexpr int64_t kBytes = 64, kLine = kBytes / static_cast<int64_t>(sizeof(T));
  // Enough not to read what has just been written.
  static constexpr int64_t kEnough = 1024;

  void Flush(bool all) {
    using D = hn::CappedTag<uint32_t, 8>;
    const D d;
    constexpr int64_t kStep = 8 * 4 / static_cast<int64_t>(sizeof(T));
    int64_t c = 0;
    if (skip_ > 0) {  // the first line begins before what is ours
      c = std::min(kLine, fill_);
      std::memcpy(out_ + skip_, buffer_ + skip_, static_cast<size_t>(c - skip_) * sizeof(T));
      skip_ = c == kLine ? 0 : c;
    }
    for (; c + kLine <= fill_; c += kLine) {
      for (int64_t part = 0; part < kLine; part += kStep) {
        const auto v = hn::LoadU(d, reinterpret_cast<const uint32_t*>(buffer_ + c + part));
        auto* to = reinterpret_cast<uint32_t*>(out_ + c + part);
        hn::Stream(v, d, to);
      }
    }
    if (all) {
      std::memcpy(out_ + c, buffer_ + c, static_cast<size_t>(fill_ - c) * sizeof(T));
      return;
    }
    std::memmove(buffer_, buffer_ + c, static_cast<size_t>(fill_ - c) * sizeof(T));
    out_ += c;
    fill_ -= c;
  }

  alignas(64) T buffer_[kEnough + kMost + 64];
  T* out_;
  int64_t skip_, fill_;
};

#endif  // HWY_MAX_BYTES >= 32

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_GATHERED_INL_H_
