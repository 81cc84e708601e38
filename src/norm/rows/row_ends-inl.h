// Partial vectors at the two ends of an output row. Compiled once for each target, in
// namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_ROWS_ROW_ENDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_ROWS_ROW_ENDS_INL_H_
#undef PLANISH_SRC_NORM_ROWS_ROW_ENDS_INL_H_
#else
#define PLANISH_SRC_NORM_ROWS_ROW_ENDS_INL_H_
#endif

#include <hwy/cache_control.h>

#include <cstdint>
#include <cstring>

#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

/// Copies one vector of results with a non-temporal store.
template <class D>
HWY_INLINE void NtStoreCopy(D d, const hn::TFromD<D>* from, hn::TFromD<D>* to) {
  hn::Stream(hn::LoadU(d, from), d, to);
}
template <class D, IsHalf T>
HWY_INLINE void NtStoreCopy(D, const T* from, T* to) {
  hn::Stream(hn::LoadU(Half<D>(), reinterpret_cast<const uint16_t*>(from)), Half<D>(),
             reinterpret_cast<uint16_t*>(to));
}

/// Vectors of an output row. Non-temporal stores need whole aligned vectors: `lead` elements
/// precede the first one, `rest` elements follow the last. For ordinary stores lead is 0, and the
/// last vector overlaps the one before.
template <bool kNtStores, class D, class T>
struct RowLayout {
  int64_t lead = 0, vectors = 0, rest = 0;

  RowLayout() = default;
  RowLayout(D d, const T* out, int64_t cols) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    lead = kNtStores
               ? static_cast<int64_t>(
                     (-reinterpret_cast<uintptr_t>(out) & (lanes * sizeof(T) - 1)) / sizeof(T))
               : 0;
    vectors = (cols - lead) / lanes;
    rest = (cols - lead) % lanes;
  }
};

/// Vectors at the two ends of an output row, computed before the row is written, because y can be
/// x. The vector that contains the end of one row and the start of the next is assembled in
/// `carry`, which has room for two vectors.
template <bool kNtStores, class D, class T>
struct RowEnds {
  static constexpr size_t kLanes = hn::MaxLanes(D());
  HWY_ALIGN T head[2 * kLanes] = {};
  HWY_ALIGN T tail[2 * kLanes] = {};
  RowLayout<kNtStores, D, T> layout;

  /// `carried` means that the previous row left its end in `carry`.
  HWY_INLINE void StoreHead(D d, T* out, T* carry, bool carried) const {
    if (!kNtStores || layout.lead == 0) return;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    if (carried) {
      std::memcpy(carry + lanes - layout.lead, head, kLanes * sizeof(T));
      NtStoreCopy(d, carry, out + layout.lead - lanes);
    } else {
      for (int64_t c = 0; c < layout.lead; ++c) out[c] = head[c];
    }
  }

  /// `follows` means that another row is adjacent in memory.
  HWY_INLINE void StoreTail(D d, T* out, int64_t cols, T* carry, bool follows) const {
    if (layout.rest == 0) return;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const T* last = tail + lanes - layout.rest;
    if (!kNtStores) {
      std::memcpy(out + cols - lanes, tail, kLanes * sizeof(T));
    } else if (follows) {
      std::memcpy(carry, last, kLanes * sizeof(T));
    } else {
      for (int64_t c = 0; c < layout.rest; ++c) out[cols - layout.rest + c] = last[c];
    }
  }
};

/// Returns a mask of the last `n` lanes.
template <class D>
HWY_INLINE hn::Mask<D> LastLanes(D d, int64_t n) {
  return hn::Not(hn::FirstN(d, hn::Lanes(d) - static_cast<size_t>(n)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_ROWS_ROW_ENDS_INL_H_
