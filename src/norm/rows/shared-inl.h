// Shared parts of the forward and backward loops over rows: the rows of a block, parameters in the
// order of pairs, and sums of lanes. Compiled once for each target, in namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_ROWS_SHARED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_ROWS_SHARED_INL_H_
#undef PLANISH_SRC_NORM_ROWS_SHARED_INL_H_
#else
#define PLANISH_SRC_NORM_ROWS_SHARED_INL_H_
#endif

#include <hwy/cache_control.h>

#include <cstdint>

#include "src/base/tuning.h"
#include "src/norm/rows/rows.h"
#include "src/norm/statistics-inl.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

// --- Tuning constants (docs/tuning.md) ---

/// Limit on the rows of a block.
inline constexpr int64_t kMaxRows = 4;

/// Elements of a column that should fit in the L2 cache if long rows are processed in twos: two
/// rows, the next two, and without non-temporal stores two outputs.
inline constexpr int64_t kTwoRowsElements = 6, kTwoRowsNtElements = 4;

/// Limit on the columns whose parameters are reordered to pairs once for many rows: 32 KB for each
/// array.
inline constexpr int64_t kMaxSplitColumns = 8192;

/// Rows from which reordering pays.
inline constexpr int64_t kMinSplitRows = 16;

/// Vectors that are summed in lanes before the sum continues in double: with many lanes a whole
/// chunk, at most 64 elements a lane. With few lanes fewer vectors, because adding equal values one
/// by one accumulates rounding errors.
template <class D>
inline constexpr int64_t kTurnVectors =
    sizeof(hn::TFromD<D>) == 8 || hn::MaxLanes(D()) >= 8 ? kChunk
    : hn::MaxLanes(D()) >= 4                             ? 64
                                                         : 16;

// --- End of tuning constants ---

/// Returns the rows of a block. Short rows: two, or four of the shortest, to overlap the latency
/// between sums and results. Long rows: four, which share loads of gain and bias; fewer if they
/// outgrow the L2 cache. With non-temporal stores, long rows are processed one at a time, to read
/// memory in order.
template <bool kNtStores, class T>
HWY_INLINE int64_t RowsPerBlock(int64_t cols) {
  if (cols <= kChunk) return cols <= 256 ? 4 : 2;
  if (cols > 16 * kChunk) {
    constexpr int64_t kElements = kNtStores ? kTwoRowsNtElements : kTwoRowsElements;
    constexpr int64_t kColumnBytes = kElements * sizeof(T) + 2 * sizeof(Compute<T>);
    return cols * kColumnBytes < CurrentTuning().l2_bytes ? 2 : 1;
  }
  return kNtStores ? 1 : 4;
}

/// Like RowsPerBlock, for backward.
template <bool kNtStores>
HWY_INLINE int64_t GradientRowsPerBlock(int64_t cols) {
  if (cols <= kChunk / 2) return 2;
  return kNtStores || cols <= kChunk || cols > 8 * kChunk ? 1 : 4;
}

/// Parameters in the order of pairs.
template <class D, class T>
struct SplitParameters {
  HWY_ALIGN hn::TFromD<D> values[kSplitsPairs<D, T> ? kMaxSplitColumns : 1];
};

/// Makes non-temporal stores visible to other threads.
template <bool kNtStores>
HWY_INLINE void FinishStores() {
  if constexpr (kNtStores) hwy::FlushStream();
}

#if HWY_TARGET != HWY_SCALAR
/// Returns both sums of a vector that has lanes of one sum in its lower half and of another in its
/// upper half.
template <class D>
HWY_INLINE LaneSums<hn::TFromD<D>> AddHalves(D, Vec<D> v) {
  const hn::Half<D> half;
  const auto a = hn::LowerHalf(half, v), b = hn::UpperHalf(half, v);
  if constexpr (hn::MaxLanes(D()) == 2) {
    return {hn::GetLane(a), hn::GetLane(b)};
  } else {
    return AddHalves(half,
                     hn::Add(hn::ConcatLowerLower(half, b, a), hn::ConcatUpperUpper(half, b, a)));
  }
}
#endif  // scalars have no halves

/// Returns the sums of the lanes of two vectors.
template <class D>
HWY_INLINE LaneSums<hn::TFromD<D>> AddLanes([[maybe_unused]] D d, Vec<D> first, Vec<D> second) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    return AddHalves(
        d, hn::Add(hn::ConcatLowerLower(d, second, first), hn::ConcatUpperUpper(d, second, first)));
  }
#endif
  return {hn::GetLane(first), hn::GetLane(second)};
}

#if HWY_MAX_BYTES >= 32 && HWY_TARGET != HWY_SCALAR
/// One element for each of eight rows or runs.
using Eight = hn::CappedTag<float, 8>;

/// Returns the lane sums of eight vectors, each added in the order of AddLanes.
HWY_INLINE Vec<Eight> SumsOfEight(const Vec<Eight> (&v)[8]) {
  const Eight d;
  const hn::Repartition<double, Eight> pairs;
  const auto halves = [&](size_t i) HWY_ATTR {
    return hn::Add(hn::ConcatLowerLower(d, v[i + 4], v[i]),
                   hn::ConcatUpperUpper(d, v[i + 4], v[i]));
  };
  const auto two = [&](Vec<Eight> a, Vec<Eight> b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto a = hn::BitCast(pairs, two(halves(0), halves(1)));
  const auto b = hn::BitCast(pairs, two(halves(2), halves(3)));
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)),
                 hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)));
}

/// Adds the lanes of a vector in pairs until eight are left.
template <class D>
HWY_INLINE Vec<Eight> FoldToEight(D, Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 8) {
    return v;
  } else {
    const Eight d;
    return hn::Add(hn::LowerHalf(d, v), hn::UpperHalf(d, v));
  }
}
#endif  // HWY_MAX_BYTES >= 32

template <bool kCentre, class D>
HWY_INLINE Vec<D> XhatOfValues(Vec<D> x, Vec<D> mean, Vec<D> rstd, Vec<D> offset) {
  if constexpr (kCentre) {
    return hn::MulAdd(hn::Sub(x, mean), rstd, offset);
  } else {
    return hn::Mul(x, rstd);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_ROWS_SHARED_INL_H_
