// Kernels of every norm over rows. One loop over columns writes the results of one row while it
// sums a later one, so memory is read once. Rows go in blocks, and long rows in chunks of columns
// over the block. So gain and bias are loaded once a block, and the latency from a row's sums to
// its results is paid once a block. Compiled once for each target, in namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_ROWS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_ROWS_ROWS_INL_H_
#undef PLANISH_SRC_NORM_ROWS_ROWS_INL_H_
#else
#define PLANISH_SRC_NORM_ROWS_ROWS_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "src/base/tuning.h"
#include "src/norm/moments-inl.h"
#include "src/norm/rows/rows.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {

/// Prefetch distances for rows in memory: far ahead into the L2 cache, and from there near into L1.
/// L1 only has too few outstanding lines; L2 only leaves short loops waiting for L2.
inline constexpr int64_t kPrefetchFarBytes = 16384, kPrefetchNearBytes = 2048;

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

/// Prefetch distance for outputs, whose lines are read before they are written, and for inputs that
/// are read in order from a distant L3 cache.
inline constexpr int64_t kPrefetchShortBytes = 4096;
template <class T>
HWY_INLINE void PrefetchShortAhead(const T* at, int64_t n) {
  const auto* line = reinterpret_cast<const char*>(at);
  for (int64_t byte = 0; byte < n * static_cast<int64_t>(sizeof(T)); byte += 64) {
    PrefetchFar(line + byte + kPrefetchShortBytes);
  }
}

/// Prefetches two vectors, as PrefetchAhead.
template <class D, class T>
HWY_INLINE void PrefetchTwo(D, const T* at, int64_t far = kPrefetchFarBytes) {
  PrefetchAhead(at, 2 * hn::MaxLanes(D()), far);
}

/// Copies one vector of results with a non-temporal store.
template <class D>
HWY_INLINE void StreamCopy(D d, const hn::TFromD<D>* from, hn::TFromD<D>* to) {
  hn::Stream(hn::LoadU(d, from), d, to);
}
template <class D, IsHalf T>
HWY_INLINE void StreamCopy(D, const T* from, T* to) {
  hn::Stream(hn::LoadU(Half<D>(), reinterpret_cast<const uint16_t*>(from)), Half<D>(),
             reinterpret_cast<uint16_t*>(to));
}

/// Vectors of an output row. Non-temporal stores need whole aligned vectors: `lead` elements
/// precede the first one, `rest` elements follow the last. For ordinary stores lead is 0, and the
/// last vector overlaps the one before.
template <bool kStream, class D, class T>
struct RowLayout {
  int64_t lead = 0, vectors = 0, rest = 0;

  RowLayout() = default;
  RowLayout(D d, const T* out, int64_t cols) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    lead = kStream ? static_cast<int64_t>(
                         (-reinterpret_cast<uintptr_t>(out) & (lanes * sizeof(T) - 1)) / sizeof(T))
                   : 0;
    vectors = (cols - lead) / lanes;
    rest = (cols - lead) % lanes;
  }
};

/// Vectors at the two ends of an output row, computed before the row is written, because y can be
/// x. The vector that contains the end of one row and the start of the next is assembled in
/// `carry`, which has room for two vectors.
template <bool kStream, class D, class T>
struct RowEnds {
  static constexpr size_t kLanes = hn::MaxLanes(D());
  HWY_ALIGN T head[2 * kLanes] = {};
  HWY_ALIGN T tail[2 * kLanes] = {};
  RowLayout<kStream, D, T> layout;

  /// `carried` means that the previous row left its end in `carry`.
  HWY_INLINE void StoreHead(D d, T* out, T* carry, bool carried) const {
    if (!kStream || layout.lead == 0) return;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    if (carried) {
      std::memcpy(carry + lanes - layout.lead, head, kLanes * sizeof(T));
      StreamCopy(d, carry, out + layout.lead - lanes);
    } else {
      for (int64_t c = 0; c < layout.lead; ++c) out[c] = head[c];
    }
  }

  /// `follows` means that another row is adjacent in memory.
  HWY_INLINE void StoreTail(D d, T* out, int64_t cols, T* carry, bool follows) const {
    if (layout.rest == 0) return;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const T* last = tail + lanes - layout.rest;
    if (!kStream) {
      std::memcpy(out + cols - lanes, tail, kLanes * sizeof(T));
    } else if (follows) {
      std::memcpy(carry, last, kLanes * sizeof(T));
    } else {
      for (int64_t c = 0; c < layout.rest; ++c) out[cols - layout.rest + c] = last[c];
    }
  }
};

/// Limit on the rows of a block.
inline constexpr int64_t kMaxRows = 4;

/// Returns the rows of a block. Short rows: two, or four of the shortest, to overlap the latency
/// between sums and results. Long rows: four, which share loads of gain and bias; fewer if they
/// outgrow the L2 cache. With non-temporal stores, long rows go one at a time, to read memory in
/// order. With a distant L3 cache two of the shortest rows suffice.
template <bool kStream, class T>
HWY_INLINE int64_t RowsPerBlock(int64_t cols, bool prefetched) {
  if (cols <= kChunk) {
    const bool far = prefetched || (kStream && LastCacheIsFar());
    return cols <= 256 && !far ? 4 : 2;
  }
  if (cols > 16 * kChunk) {
    constexpr int64_t kTwoRows = (kStream ? 4 : 6) * sizeof(T) + 2 * sizeof(Compute<T>);
    return cols * kTwoRows < SecondCacheBytes() ? 2 : 1;
  }
  return kStream ? 1 : 4;
}

/// Like RowsPerBlock, for backward.
template <bool kStream>
HWY_INLINE int64_t GradientRowsPerBlock(int64_t cols) {
  if (cols <= kChunk / 2) return 2;
  return kStream || cols <= kChunk || cols > 8 * kChunk ? 1 : 4;
}

/// Limit on the columns whose parameters are reordered to pairs once for many rows: 32 KB for each
/// array.
inline constexpr int64_t kMaxSplitColumns = 8192;

/// Rows from which reordering pays.
inline constexpr int64_t kMinSplitRows = 16;

/// Parameters in the order of pairs.
template <class D, class T>
struct SplitParameters {
  HWY_ALIGN hn::TFromD<D> numbers[kSplitsPairs<D, T> ? kMaxSplitColumns : 1];
};

/// Makes non-temporal stores visible to other threads.
template <bool kStream>
HWY_INLINE void FinishStores() {
  if constexpr (kStream) hwy::FlushStream();
}

/// Vectors that are summed in lanes before the sum continues in double: with many lanes a whole
/// chunk, at most 64 elements a lane. With few lanes fewer vectors, because adding equal values one
/// by one accumulates rounding errors.
template <class D>
inline constexpr int64_t kTurnVectors =
    sizeof(hn::TFromD<D>) == 8 || hn::MaxLanes(D()) >= 8 ? kChunk
    : hn::MaxLanes(D()) >= 4                             ? 64
                                                         : 16;

/// Returns a mask of the last `n` lanes.
template <class D>
HWY_INLINE hn::Mask<D> LastLanes(D d, int64_t n) {
  return hn::Not(hn::FirstN(d, hn::Lanes(d) - static_cast<size_t>(n)));
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

// --- Forward ---

template <class C>
struct OutputArgs {
  const C* gain;
  const C* bias;
  C scale;      // for Output::kAdaptive
  C neg_slope;  // -scale * slope

  HWY_INLINE OutputArgs At(int64_t c) const { return {gain + c, bias + c, scale, neg_slope}; }
};

template <bool kCentre, class D>
HWY_INLINE Vec<D> XhatOfNumbers(Vec<D> x, Vec<D> mean, Vec<D> rstd, Vec<D> offset) {
  if constexpr (kCentre) {
    return hn::MulAdd(hn::Sub(x, mean), rstd, offset);
  } else {
    return hn::Mul(x, rstd);
  }
}

template <class D>
HWY_INLINE Vec<D> Adapted(D d, Vec<D> xhat, const OutputArgs<hn::TFromD<D>>& out) {
  return hn::Mul(hn::MulAdd(xhat, hn::Set(d, out.neg_slope), hn::Set(d, out.scale)), xhat);
}

template <Output kOutput, bool kCentre, class D, class T>
HWY_INLINE Vec<D> Normalise(D d, const T* x, const OutputArgs<hn::TFromD<D>>& out, Vec<D> mean,
                            Vec<D> rstd, Vec<D> offset) {
  const Vec<D> xhat = XhatOfNumbers<kCentre, D>(Read(d, x), mean, rstd, offset);
  if constexpr (kOutput == Output::kAffine) {
    return hn::MulAdd(xhat, hn::LoadU(d, out.gain), hn::LoadU(d, out.bias));
  } else if constexpr (kOutput == Output::kAdaptive) {
    return Adapted(d, xhat, out);
  } else {
    return xhat;
  }
}

/// Computes two vectors of results. gain and bias are used only for Output::kAffine.
template <Output kOutput, bool kCentre, class D, class T>
HWY_INLINE VectorPair<D> NormalisePairBy(D d, const T* x, const VectorPair<D>& gain,
                                         const VectorPair<D>& bias,
                                         const OutputArgs<hn::TFromD<D>>& out, Vec<D> mean,
                                         Vec<D> rstd, Vec<D> offset) {
  VectorPair<D> v = ReadPair(d, x);
  v.first = XhatOfNumbers<kCentre, D>(v.first, mean, rstd, offset);
  v.second = XhatOfNumbers<kCentre, D>(v.second, mean, rstd, offset);
  if constexpr (kOutput == Output::kAffine) {
    v.first = hn::MulAdd(v.first, gain.first, bias.first);
    v.second = hn::MulAdd(v.second, gain.second, bias.second);
  } else if constexpr (kOutput == Output::kAdaptive) {
    v.first = Adapted(d, v.first, out);
    v.second = Adapted(d, v.second, out);
  }
  return v;
}

/// Computes two vectors of results, with gain and bias loaded by ReadParameterPair<T, kSplit>.
template <Output kOutput, bool kCentre, bool kSplit, class D, class T>
HWY_INLINE VectorPair<D> NormalisePair(D d, const T* x, const OutputArgs<hn::TFromD<D>>& out,
                                       Vec<D> mean, Vec<D> rstd, Vec<D> offset) {
  VectorPair<D> gain{mean, mean}, bias = gain;
  if constexpr (kOutput == Output::kAffine) {
    gain = ReadParameterPair<T, kSplit>(d, out.gain);
    bias = ReadParameterPair<T, kSplit>(d, out.bias);
  }
  return NormalisePairBy<kOutput, kCentre>(d, x, gain, bias, out, mean, rstd, offset);
}

template <bool kCentre, class D>
HWY_INLINE void AddNumbers(Vec<D> v, Vec<D> shift, Vec<D>& first, Vec<D>& second) {
  if constexpr (kCentre) {
    v = hn::Sub(v, shift);
    first = hn::Add(first, v);
  }
  second = hn::MulAdd(v, v, second);
}

template <bool kCentre, class D, class T>
HWY_INLINE void AddSums(D d, const T* x, Vec<D> shift, Vec<D>& first, Vec<D>& second) {
  AddNumbers<kCentre, D>(Read(d, x), shift, first, second);
}

/// Sums of two vectors at a time: one accumulator for each vector of a pair.
template <class D>
struct PairSums {
  Vec<D> first0, first1, second0, second1;

  explicit HWY_INLINE PairSums(D d)
      : first0(hn::Zero(d)), first1(hn::Zero(d)), second0(hn::Zero(d)), second1(hn::Zero(d)) {}

  template <bool kCentre, class T>
  HWY_INLINE void AddPair(D d, const T* x, Vec<D> shift) {
    const VectorPair<D> v = ReadPair(d, x);
    AddNumbers<kCentre, D>(v.first, shift, first0, second0);
    AddNumbers<kCentre, D>(v.second, shift, first1, second1);
  }

  HWY_INLINE LaneSums<hn::TFromD<D>> Total(D d) const {
    return AddLanes(d, hn::Add(first0, first1), hn::Add(second0, second1));
  }
};

/// Adds the last `rest` columns before `end`, fewer than a vector.
template <bool kCentre, class D, class T>
HWY_INLINE void AddLastSums(D d, const T* end, int64_t rest, Vec<D> shift, Vec<D>& first,
                            Vec<D>& second) {
  // Masks the lanes that have already been counted.
  Vec<D> v = Read(d, end - hn::Lanes(d));
  if constexpr (kCentre) v = hn::Sub(v, shift);
  v = hn::IfThenElseZero(LastLanes(d, rest), v);
  if constexpr (kCentre) first = hn::Add(first, v);
  second = hn::MulAdd(v, v, second);
}

/// Returns the sum of kVectors vectors, `step` elements apart. Exact for equal vectors, because
/// each addition doubles.
template <int64_t kVectors, class D, class T>
HWY_INLINE Vec<D> SumSamples(D d, const T* x, int64_t step) {
  if constexpr (kVectors == 1) {
    return Read(d, x);
  } else {
    return hn::Add(SumSamples<kVectors / 2>(d, x, step),
                   SumSamples<kVectors / 2>(d, x + kVectors / 2 * step, step));
  }
}

/// Returns a value near the mean of a row with at least as many columns as lanes: the mean of two
/// vectors, or of eight elements if vectors are shorter. For a constant row it is the constant.
template <bool kCentre, class D, class T>
HWY_INLINE hn::TFromD<D> ShiftOf([[maybe_unused]] D d, [[maybe_unused]] const T* x,
                                 [[maybe_unused]] int64_t cols) {
  using C = hn::TFromD<D>;
  if constexpr (!kCentre) return C{0};
  constexpr int64_t kLanes = hn::MaxLanes(D()), kVectors = kLanes < 4 ? 8 / kLanes : 2;
  const Vec<D> samples =
      SumSamples<kVectors>(d, x, (cols - kLanes) / (kVectors == 2 ? 2 : kVectors - 1));
  return AddLanes(d, samples, samples).first * (C{1} / static_cast<C>(kLanes * kVectors));
}

/// The main loop. Writes `vectors` vectors of results from `x` to `y`. Sums as many vectors at
/// `next`, then `more` (0 or 1) vectors, then `rest` columns, fewer than a vector.
template <Output kOutput, bool kCentre, bool kStream, bool kSplit, class D, class T,
          class C = Compute<T>>
HWY_NOINLINE LaneSums<C> ForwardChunkLanes(const T* next, const T* x, T* y, const C* gain,
                                           const C* bias, int64_t vectors, C shift_, C mean_,
                                           C rstd_, C offset_, C scale, C neg_slope, int64_t more,
                                           int64_t rest) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec<D> shift = hn::Set(d, shift_), mean = hn::Set(d, mean_);
  const Vec<D> rstd = hn::Set(d, rstd_), offset = hn::Set(d, offset_);
  PairSums<D> sums(d);
  const OutputArgs<C> out{gain, bias, scale, neg_slope};
  const auto put = [&](int64_t a) HWY_ATTR {
    Put<kStream>(d, Normalise<kOutput, kCentre>(d, x + a, out.At(a), mean, rstd, offset), y + a);
  };
  int64_t c = 0;
  for (const int64_t end = (vectors & ~int64_t{1}) * lanes; c < end; c += 2 * lanes) {
    if constexpr (kStream) PrefetchTwo(d, next + c);
    if constexpr (kSplitsPairs<D, T>) {
      sums.template AddPair<kCentre>(d, next + c, shift);
      PutPair<kStream>(
          d, NormalisePair<kOutput, kCentre, kSplit>(d, x + c, out.At(c), mean, rstd, offset),
          y + c);
    } else {  // one after the other, to use fewer registers
      const int64_t b = c + lanes;
      AddSums<kCentre>(d, next + c, shift, sums.first0, sums.second0);
      put(c);
      AddSums<kCentre>(d, next + b, shift, sums.first1, sums.second1);
      put(b);
    }
  }
  // Without this, a quarter of a row of few vectors would not be prefetched.
  if constexpr (kStream) PrefetchTwo(d, next + c);
  if (vectors & 1) put(c);
  // Keeps the order of sums independent of the alignment of results.
  const int64_t left = (vectors & 1) + more;
  if (left == 2) {
    sums.template AddPair<kCentre>(d, next + c, shift);
  } else if (left == 1) {
    AddSums<kCentre>(d, next + c, shift, sums.first0, sums.second0);
  }
  c += left * lanes;
  if (rest > 0) AddLastSums<kCentre>(d, next + c + rest, rest, shift, sums.first1, sums.second1);
  return sums.Total(d);
}

/// Calls ForwardChunkLanes often enough to keep each lane's sums short.
template <Output kOutput, bool kCentre, bool kStream, bool kSplit, class D, class T,
          class C = Compute<T>>
HWY_INLINE RowSums ForwardChunk(const T* next, const T* x, T* y, const OutputArgs<C> out,
                                int64_t vectors, C shift, const RowCoefficients<C>& map,
                                int64_t more, int64_t rest) {
  const auto run = [&](int64_t c, int64_t v, int64_t m, int64_t columns) HWY_ATTR {
    return ForwardChunkLanes<kOutput, kCentre, kStream, kSplit, D>(
        next + c, x + c, y + c, out.gain + c, out.bias + c, v, shift, map.mean, map.rstd,
        map.offset, out.scale, out.neg_slope, m, columns);
  };
  RowSums sums;
  int64_t c = 0;
  for (; vectors > kTurnVectors<D>; vectors -= kTurnVectors<D>) {
    sums.Add(run(c, kTurnVectors<D>, 0, 0));
    c += kTurnVectors<D> * static_cast<int64_t>(hn::Lanes(D()));
  }
  sums.Add(run(c, vectors, more, rest));
  return sums;
}

/// Returns the sums of `cols` columns in the order of ForwardChunkLanes, without writing results.
template <bool kCentre, class D, class T, class C = Compute<T>>
HWY_NOINLINE LaneSums<C> SumChunkLanes(const T* next, int64_t cols, C shift_) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec<D> shift = hn::Set(d, shift_);
  PairSums<D> sums(d);
  int64_t c = 0;
  for (; c + 2 * lanes <= cols; c += 2 * lanes) {
    sums.template AddPair<kCentre>(d, next + c, shift);
  }
  if (c + lanes <= cols) {
    AddSums<kCentre>(d, next + c, shift, sums.first0, sums.second0);
    c += lanes;
  }
  if (c < cols) {
    AddLastSums<kCentre>(d, next + cols, cols - c, shift, sums.first1, sums.second1);
  }
  return sums.Total(d);
}

template <bool kCentre, class D, class T>
HWY_INLINE RowSums SumChunk(const T* next, int64_t cols, Compute<T> shift) {
  constexpr int64_t kTurn = kTurnVectors<D> * hn::MaxLanes(D());
  RowSums sums;
  int64_t c = 0;
  for (; cols - c >= kTurn + static_cast<int64_t>(hn::Lanes(D())); c += kTurn) {
    sums.Add(SumChunkLanes<kCentre, D>(next + c, kTurn, shift));
  }
  sums.Add(SumChunkLanes<kCentre, D>(next + c, cols - c, shift));
  return sums;
}

template <bool kCentre, class D, class T>
HWY_INLINE RowSums SumRow(const T* x, int64_t cols, Compute<T> shift) {
  RowSums sums;
  for (int64_t c = 0; c < cols; c += kChunk) {
    sums.Add(SumChunk<kCentre, D>(x + c, std::min(kChunk, cols - c), shift));
  }
  return sums;
}

/// Writes the results of `cols` columns, without sums.
template <Output kOutput, bool kCentre, bool kStream, class D, class T>
HWY_NOINLINE void MapRow(D d, const T* x, int64_t cols, const RowCoefficients<Compute<T>> map,
                         const OutputArgs<Compute<T>> out, T* y, T* carry, bool carried,
                         bool follows) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec<D> mean = hn::Set(d, map.mean), rstd = hn::Set(d, map.rstd);
  const Vec<D> offset = hn::Set(d, map.offset);
  RowEnds<kStream, D, T> ends;
  ends.layout = RowLayout<kStream, D, T>(d, y, cols);
  const int64_t last = cols - lanes, end = ends.layout.lead + ends.layout.vectors * lanes;
  if (ends.layout.lead > 0) {
    Write(d, Normalise<kOutput, kCentre>(d, x, out, mean, rstd, offset), ends.head);
  }
  if (ends.layout.rest > 0) {
    Write(d, Normalise<kOutput, kCentre>(d, x + last, out.At(last), mean, rstd, offset), ends.tail);
  }
  ends.StoreHead(d, y, carry, carried);
  int64_t c = ends.layout.lead;
  for (; c + 2 * lanes <= end; c += 2 * lanes) {
    PutPair<kStream>(
        d, NormalisePair<kOutput, kCentre, false>(d, x + c, out.At(c), mean, rstd, offset), y + c);
  }
  if (c < end) {
    Put<kStream>(d, Normalise<kOutput, kCentre>(d, x + c, out.At(c), mean, rstd, offset), y + c);
  }
  ends.StoreTail(d, y, cols, carry, follows);
}

/// Returns the vector of results with the end of one row and the start of the next, for contiguous
/// rows of x and y. gain and bias in `ends` contain the last parameters, then the first.
template <Output kOutput, bool kCentre, class D, class T, class C = Compute<T>>
HWY_INLINE Vec<D> NormaliseAcross(D d, const T* next, const RowCoefficients<C>& map,
                                  const RowCoefficients<C>& next_map, const OutputArgs<C>& ends,
                                  int64_t lead) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto of_next = hn::Not(hn::FirstN(d, static_cast<size_t>(lanes - lead)));
  const auto of_both = [&](C v, C next_v) HWY_ATTR {
    return hn::IfThenElse(of_next, hn::Set(d, next_v), hn::Set(d, v));
  };
  return Normalise<kOutput, kCentre>(
      d, next + lead - lanes, ends.At(lead), of_both(map.mean, next_map.mean),
      of_both(map.rstd, next_map.rstd), of_both(map.offset, next_map.offset));
}

/// Calls args.revise, if set, for rows [r, r + n) and reloads their coefficients.
template <class T>
HWY_INLINE void Revise(const RowsForward<T>& args, int64_t r, int64_t n,
                       RowCoefficients<Compute<T>>* maps) {
  if (args.revise == nullptr || n == 0) [[likely]]
    return;
  (*args.revise)(r, r + n);
  for (int64_t i = 0; i < n; ++i) maps[i] = SavedMoments(args, r + i);
}

/// Computes ForwardRows for cols >= lanes.
template <Output kOutput, bool kCentre, bool kStream, class D, class T>
HWY_NOINLINE void ForwardRowsWide(D d, const RowsForward<T>& args, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t cols = args.cols, x_stride = args.x_stride, y_stride = args.y_stride;
  const int64_t block = RowsPerBlock<kStream, T>(cols, args.ask);
  const double reciprocal = 1 / static_cast<double>(cols);
  const OutputArgs<C> out{args.gain, args.bias, args.scale, -args.scale * args.slope};
  const bool packed = y_stride == cols, joined = kStream && packed && x_stride == cols;
  // Rows of whole vectors at aligned addresses have no partial vectors at their ends.
  const bool even =
      cols % lanes == 0 &&
      (!kStream || (y_stride % lanes == 0 && RowLayout<kStream, D, T>(d, args.y, cols).lead == 0));
  RowEnds<kStream, D, T> ends[kMaxRows];
  HWY_ALIGN T carry[2 * hn::MaxLanes(D())] = {};
  for (int64_t i = 0; i < block; ++i) ends[i].layout.vectors = cols / lanes;
  RowCoefficients<C> maps[kMaxRows], last_map;
  RowSums sums[kMaxRows];
  C shifts[kMaxRows] = {};
  HWY_ALIGN C end_gain[2 * hn::MaxLanes(D())] = {}, end_bias[2 * hn::MaxLanes(D())] = {};
  if (joined && kOutput == Output::kAffine) {
    std::copy_n(out.gain + cols - lanes, lanes, end_gain);
    std::copy_n(out.gain, lanes, end_gain + lanes);
    std::copy_n(out.bias + cols - lanes, lanes, end_bias);
    std::copy_n(out.bias, lanes, end_bias + lanes);
  }
  const OutputArgs<C> row_ends_args{end_gain, end_bias, out.scale, out.neg_slope};
  constexpr bool kSplit = kSplitsPairs<D, T> && kOutput == Output::kAffine;
  SplitParameters<D, T> split_gain, split_bias;
  const bool split = kSplit && cols <= kMaxSplitColumns && end - begin >= kMinSplitRows;
  if (split) {
    SplitPairs(d, out.gain, cols, split_gain.numbers);
    SplitPairs(d, out.bias, cols, split_bias.numbers);
  }
  const OutputArgs<C> split_out{split_gain.numbers, split_bias.numbers, C{0}, C{0}};

  // First the sums of the first block. Then, while two whole blocks remain, the results of one with
  // the sums of the next. Then the remaining results.
  int64_t r = begin, summed = std::min(block, end - begin);
  for (int64_t i = 0; i < summed; ++i) {
    const T* x = args.x + (r + i) * x_stride;
    const C shift = ShiftOf<kCentre>(d, x, cols);
    maps[i] = FinishMoments(args, r + i, static_cast<double>(shift),
                            SumRow<kCentre, D>(x, cols, shift), reciprocal);
  }
  Revise(args, r, summed, maps);
  for (; r + 2 * block <= end; r += block) {
    const T* x = args.x + r * x_stride;
    const T* next = x + block * x_stride;
    T* y = args.y + r * y_stride;
    for (int64_t i = 0; i < block && !even; ++i) {
      const RowCoefficients<C>& map = maps[i];
      const T* row = x + i * x_stride;
      T* const to = y + i * y_stride;
      ends[i].layout = RowLayout<kStream, D, T>(d, to, cols);
      if (joined && r + i > begin) {
        const int64_t lead = ends[i].layout.lead;
        if (lead == 0) continue;
        Put<kStream>(d,
                     NormaliseAcross<kOutput, kCentre>(d, row, i > 0 ? maps[i - 1] : last_map, map,
                                                       row_ends_args, lead),
                     to + lead - lanes);
        continue;
      }
      const Vec<D> mean = hn::Set(d, map.mean), rstd = hn::Set(d, map.rstd);
      const Vec<D> offset = hn::Set(d, map.offset);
      const int64_t last = cols - lanes;
      if (kStream) {
        Write(d, Normalise<kOutput, kCentre>(d, row, out, mean, rstd, offset), ends[i].head);
      }
      Write(d, Normalise<kOutput, kCentre>(d, row + last, out.At(last), mean, rstd, offset),
            ends[i].tail);
    }
    for (int64_t i = 0; i < block; ++i) {
      shifts[i] = ShiftOf<kCentre>(d, next + i * x_stride, cols);
      sums[i] = RowSums();
    }
    for (int64_t c = 0; c < cols; c += kChunk) {
      const int64_t width = std::min(kChunk, cols - c), whole = width / lanes;
      for (int64_t i = 0; i < block; ++i) {
        if (!kStream && args.ask) PrefetchShortAhead(y + i * y_stride + c, width);
        const int64_t from = ends[i].layout.lead + c;
        const int64_t vectors = std::clamp<int64_t>(ends[i].layout.vectors - c / lanes, 0, whole);
        const auto run = [&](auto is_split, const OutputArgs<C>& parameters) HWY_ATTR {
          sums[i].Add(ForwardChunk<kOutput, kCentre, kStream, is_split(), D>(
              next + i * x_stride + c, x + i * x_stride + from, y + i * y_stride + from,
              parameters.At(from), vectors, shifts[i], maps[i], whole - vectors, width % lanes));
        };
        if (split && ends[i].layout.lead == 0) {
          run(std::bool_constant<kSplit>(), split_out);
        } else {
          run(std::false_type(), out);
        }
      }
    }
    for (int64_t i = 0; i < block && !even; ++i) {
      if (joined) {
        if (r + i == begin) ends[i].StoreHead(d, y, carry, false);
        continue;
      }
      ends[i].StoreHead(d, y + i * y_stride, carry, packed && r + i > begin);
      ends[i].StoreTail(d, y + i * y_stride, cols, carry, packed);
    }
    last_map = maps[block - 1];
    for (int64_t i = 0; i < block; ++i) {
      maps[i] =
          FinishMoments(args, r + block + i, static_cast<double>(shifts[i]), sums[i], reciprocal);
    }
    Revise(args, r + block, block, maps);
    summed = block;
  }
  if (joined && !even && r > begin) {
    // The end of the last row is stored together with the start of the next.
    ends[0].layout = RowLayout<kStream, D, T>(d, args.y + (r - 1) * y_stride, cols);
    const int64_t last = r * cols - lanes;
    Write(d,
          Normalise<kOutput, kCentre>(d, args.x + last, out.At(cols - lanes),
                                      hn::Set(d, last_map.mean), hn::Set(d, last_map.rstd),
                                      hn::Set(d, last_map.offset)),
          ends[0].tail);
    ends[0].StoreTail(d, args.y + (r - 1) * y_stride, cols, carry, true);
  }
  for (int64_t i = 0; r < end; ++i, ++r) {
    const T* x = args.x + r * x_stride;
    if (i >= summed) {
      const C shift = ShiftOf<kCentre>(d, x, cols);
      maps[0] = FinishMoments(args, r, static_cast<double>(shift),
                              SumRow<kCentre, D>(x, cols, shift), reciprocal);
      Revise(args, r, 1, maps);
    }
    MapRow<kOutput, kCentre, kStream>(d, x, cols, maps[i < summed ? i : 0], out,
                                      args.y + r * y_stride, carry, packed && r > begin,
                                      packed && r + 1 < end);
  }
  FinishStores<kStream>();
}

/// Computes MapAndSumRows for cols >= lanes.
template <Output kOutput, bool kCentre, bool kStream, class D, class T>
void MapAndSumRowsWide(D d, const RowsForward<T>& map, const RowsForward<T>& next) {
  using C = Compute<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t cols = map.cols;
  const double reciprocal = 1 / static_cast<double>(cols);
  const OutputArgs<C> out{map.gain, map.bias, map.scale, -map.scale * map.slope};
  const bool packed = map.y_stride == cols;
  // Rows of whole vectors at aligned addresses are mapped while the others are summed.
  const bool even =
      cols % lanes == 0 && (!kStream || (map.y_stride % lanes == 0 &&
                                         RowLayout<kStream, D, T>(d, map.y, cols).lead == 0));
  HWY_ALIGN T carry[2 * hn::MaxLanes(D())] = {};
  const int64_t block = RowsPerBlock<kStream, T>(cols, map.ask);
  int64_t r = 0;
  for (; even && r + block <= std::min(map.rows, next.rows); r += block) {
    const T* x = map.x + r * map.x_stride;
    T* y = map.y + r * map.y_stride;
    const T* summed = next.x + r * next.x_stride;
    RowCoefficients<C> row_maps[kMaxRows];
    RowSums row_sums[kMaxRows];
    C shifts[kMaxRows] = {};
    for (int64_t i = 0; i < block; ++i) {
      row_maps[i] = SavedMoments(map, r + i);
      shifts[i] = ShiftOf<kCentre>(d, summed + i * next.x_stride, cols);
    }
    for (int64_t c = 0; c < cols; c += kChunk) {
      const int64_t vectors = std::min(kChunk, cols - c) / lanes;
      for (int64_t i = 0; i < block; ++i) {
        row_sums[i].Add(ForwardChunk<kOutput, kCentre, kStream, false, D>(
            summed + i * next.x_stride + c, x + i * map.x_stride + c, y + i * map.y_stride + c,
            out.At(c), vectors, shifts[i], row_maps[i], 0, 0));
      }
    }
    for (int64_t i = 0; i < block; ++i) {
      FinishMoments(next, r + i, static_cast<double>(shifts[i]), row_sums[i], reciprocal);
    }
  }
  const int64_t mapped = r;
  for (; r < std::max(map.rows, next.rows); ++r) {
    const T* x = map.x + r * map.x_stride;
    const T* summed = next.x + r * next.x_stride;
    if (r < map.rows) {
      MapRow<kOutput, kCentre, kStream>(d, x, cols, SavedMoments(map, r), out,
                                        map.y + r * map.y_stride, carry, packed && r > mapped,
                                        packed && r + 1 < map.rows);
    }
    if (r < next.rows) {
      const C shift = ShiftOf<kCentre>(d, summed, cols);
      FinishMoments(next, r, static_cast<double>(shift), SumRow<kCentre, D>(summed, cols, shift),
                    reciprocal);
    }
  }
  FinishStores<kStream>();
}

/// Implements SumChunks.
template <class D, class T>
void SumRowChunks(D d, const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end,
                  double* sums) {
  const T* x = args.x + row * args.x_stride;
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t c = chunk * kChunk, width = std::min(kChunk, args.cols - c);
    RowSums part;
    if (args.recipe.centre) {
      part.Add(SumChunk<true, D>(x + c, width, ShiftOf<true>(d, x, args.cols)));
    } else {
      part.Add(SumChunk<false, D>(x + c, width, Compute<T>{0}));
    }
    sums[2 * chunk] = part.first;
    sums[2 * chunk + 1] = part.second;
  }
}

/// Implements FinishRow.
template <class D, class T>
void FinishRowChunks(D d, const RowsForward<T>& args, int64_t row, const double* parts) {
  RowSums sums;
  for (int64_t chunk = 0; chunk * kChunk < args.cols; ++chunk) {
    sums.first += parts[2 * chunk];
    sums.second += parts[2 * chunk + 1];
  }
  const T* x = args.x + row * args.x_stride;
  const Compute<T> shift = args.recipe.centre ? ShiftOf<true>(d, x, args.cols) : Compute<T>{0};
  FinishMoments(args, row, static_cast<double>(shift), sums, 1 / static_cast<double>(args.cols));
}

/// Implements MapColumns.
template <Output kOutput, bool kCentre, bool kStream, class D, class T>
void MapRowColumns(D d, const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* x = args.x + row * args.x_stride + begin;
  T* y = args.y + row * args.y_stride + begin;
  const int64_t cols = end - begin;
  const OutputArgs<C> out =
      OutputArgs<C>{args.gain, args.bias, args.scale, -args.scale * args.slope}.At(begin);
  const RowCoefficients<C> map = SavedMoments(args, row);
  // Fewer columns than a vector, one at a time: a whole vector would read columns before `begin`,
  // which another thread may already have overwritten in place.
  if (cols < lanes) {
    const OneLane<D> one;
    for (int64_t c = 0; c < cols; ++c) {
      Write(one,
            Normalise<kOutput, kCentre>(one, x + c, out.At(c), hn::Set(one, map.mean),
                                        hn::Set(one, map.rstd), hn::Set(one, map.offset)),
            y + c);
    }
    return;
  }
  MapRow<kOutput, kCentre, kStream>(d, x, cols, map, out, y, static_cast<T*>(nullptr), false,
                                    false);
  FinishStores<kStream>();
}

// --- Backward ---

template <class C>
struct GradientArgs {
  const C* gain;
  C scale;
  C neg_slope;

  HWY_INLINE GradientArgs At(int64_t c) const { return {gain + c, scale, neg_slope}; }
};

/// Returns the gain of one vector of columns, or zeros.
template <Output kOutput, class D>
HWY_INLINE Vec<D> GainOf(D d, const GradientArgs<hn::TFromD<D>>& args) {
  if constexpr (kOutput == Output::kAffine) return hn::LoadU(d, args.gain);
  return hn::Zero(d);
}

/// Returns the gain of two vectors, loaded by ReadParameterPair<T, kSplit>, or zeros.
template <Output kOutput, class T, bool kSplit, class D>
HWY_INLINE VectorPair<D> GainPairOf(D d, const GradientArgs<hn::TFromD<D>>& args) {
  if constexpr (kOutput != Output::kAffine) return {hn::Zero(d), hn::Zero(d)};
  return ReadParameterPair<T, kSplit>(d, args.gain);
}

template <Output kOutput, class D>
HWY_INLINE Vec<D> GradientOfXhat(D d, Vec<D> dy, Vec<D> xhat, Vec<D> gain,
                                 const GradientArgs<hn::TFromD<D>>& args) {
  if constexpr (kOutput == Output::kAffine) {
    return hn::Mul(dy, gain);
  } else if constexpr (kOutput == Output::kAdaptive) {
    return hn::Mul(hn::MulAdd(xhat, hn::Set(d, args.neg_slope), hn::Set(d, args.scale)), dy);
  } else {
    return dy;
  }
}

/// Adds the terms of one vector to the sums of g and g * xhat, and to dgain and dbias. Lanes with
/// zeros in dy and xhat add nothing.
template <Output kOutput, bool kReadX, bool kColumns, class D>
HWY_INLINE void AddGradientSums(D d, Vec<D> dy, Vec<D> xhat, Vec<D> gain,
                                const GradientArgs<hn::TFromD<D>>& args, hn::TFromD<D>* dgain,
                                hn::TFromD<D>* dbias, Vec<D>& sum_g, Vec<D>& sum_g_xhat) {
  if constexpr (kColumns) {
    hn::StoreU(hn::MulAdd(dy, xhat, hn::LoadU(d, dgain)), d, dgain);
    hn::StoreU(hn::Add(dy, hn::LoadU(d, dbias)), d, dbias);
  }
  const Vec<D> g = GradientOfXhat<kOutput>(d, dy, xhat, gain, args);
  sum_g = hn::Add(sum_g, g);
  if constexpr (kReadX) sum_g_xhat = hn::MulAdd(g, xhat, sum_g_xhat);
}

template <bool kReadX, class D, class T>
HWY_INLINE Vec<D> XhatOf(D d, const T* x, Vec<D> mean, Vec<D> rstd, Vec<D> offset) {
  if constexpr (!kReadX) return hn::Zero(d);
  return XhatOfNumbers<true, D>(Read(d, x), mean, rstd, offset);
}

/// Returns dx of a vector from dy, xhat and gain.
template <Output kOutput, bool kReadX, class D>
HWY_INLINE Vec<D> InputGradientOf(D d, Vec<D> dy, Vec<D> xhat, Vec<D> gain,
                                  const GradientArgs<hn::TFromD<D>>& args, Vec<D> rstd,
                                  Vec<D> mean_g, Vec<D> mean_g_xhat) {
  Vec<D> v = hn::Sub(GradientOfXhat<kOutput>(d, dy, xhat, gain, args), mean_g);
  if constexpr (kReadX) v = hn::NegMulAdd(xhat, mean_g_xhat, v);
  return hn::Mul(v, rstd);
}

template <Output kOutput, bool kReadX, class D, class T>
HWY_INLINE Vec<D> InputGradient(D d, const T* dy, const T* x,
                                const GradientArgs<hn::TFromD<D>>& args, Vec<D> mean, Vec<D> rstd,
                                Vec<D> offset, Vec<D> mean_g, Vec<D> mean_g_xhat) {
  return InputGradientOf<kOutput, kReadX>(d, Read(d, dy), XhatOf<kReadX>(d, x, mean, rstd, offset),
                                          GainOf<kOutput>(d, args), args, rstd, mean_g,
                                          mean_g_xhat);
}

/// Arrays of one row, starting at some column.
template <class T>
struct GradientRow {
  const T* dy;
  const T* x;

  HWY_INLINE GradientRow At(int64_t c) const { return {dy + c, x + c}; }
};

/// Coefficients of xhat as vectors.
template <class D>
struct MapVectors {
  Vec<D> mean, rstd, offset;

  HWY_INLINE MapVectors(D d, const RowCoefficients<hn::TFromD<D>>& map)
      : mean(hn::Set(d, map.mean)), rstd(hn::Set(d, map.rstd)), offset(hn::Set(d, map.offset)) {}
};

template <Output kOutput, bool kReadX, bool kColumns, class D, class T, class C = Compute<T>>
HWY_INLINE void AddGradient(D d, const GradientRow<T> next, const MapVectors<D>& map,
                            const GradientArgs<C>& args, C* dgain, C* dbias, Vec<D>& sum_g,
                            Vec<D>& sum_g_xhat) {
  AddGradientSums<kOutput, kReadX, kColumns>(
      d, Read(d, next.dy), XhatOf<kReadX>(d, next.x, map.mean, map.rstd, map.offset),
      GainOf<kOutput>(d, args), args, dgain, dbias, sum_g, sum_g_xhat);
}

/// Returns xhat of two vectors.
template <bool kReadX, class D, class T>
HWY_INLINE VectorPair<D> XhatPairOf(D d, const T* x, Vec<D> mean, Vec<D> rstd, Vec<D> offset) {
  if constexpr (!kReadX) return {hn::Zero(d), hn::Zero(d)};
  const VectorPair<D> v = ReadPair(d, x);
  return {XhatOfNumbers<true, D>(v.first, mean, rstd, offset),
          XhatOfNumbers<true, D>(v.second, mean, rstd, offset)};
}

/// Like AddGradient, for two vectors with separate sums. dgain and dbias are in the order of
/// SplitPairs for types that ReadPair splits.
template <Output kOutput, bool kReadX, bool kColumns, bool kSplit, class D, class T,
          class C = Compute<T>>
HWY_INLINE void AddGradientPair(D d, const GradientRow<T> next, const MapVectors<D>& map,
                                const GradientArgs<C>& args, C* dgain, C* dbias, Vec<D>& g0,
                                Vec<D>& gx0, Vec<D>& g1, Vec<D>& gx1) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const VectorPair<D> dy = ReadPair(d, next.dy);
  const VectorPair<D> xhat = XhatPairOf<kReadX>(d, next.x, map.mean, map.rstd, map.offset);
  const VectorPair<D> gain = GainPairOf<kOutput, T, kSplit>(d, args);
  AddGradientSums<kOutput, kReadX, kColumns>(d, dy.first, xhat.first, gain.first, args, dgain,
                                             dbias, g0, gx0);
  // Null arrays have no second vector.
  const int64_t columns = kColumns ? lanes : 0;
  AddGradientSums<kOutput, kReadX, kColumns>(d, dy.second, xhat.second, gain.second, args,
                                             dgain + columns, dbias + columns, g1, gx1);
}

/// Like InputGradient, for two vectors and a loaded gain.
template <Output kOutput, bool kReadX, class D, class T, class C = Compute<T>>
HWY_INLINE VectorPair<D> InputGradientPairBy(D d, const GradientRow<T> row,
                                             const VectorPair<D>& gain, const GradientArgs<C>& args,
                                             Vec<D> mean, Vec<D> rstd, Vec<D> offset, Vec<D> mean_g,
                                             Vec<D> mean_gx) {
  const VectorPair<D> dy = ReadPair(d, row.dy);
  const VectorPair<D> xhat = XhatPairOf<kReadX>(d, row.x, mean, rstd, offset);
  return {InputGradientOf<kOutput, kReadX>(d, dy.first, xhat.first, gain.first, args, rstd, mean_g,
                                           mean_gx),
          InputGradientOf<kOutput, kReadX>(d, dy.second, xhat.second, gain.second, args, rstd,
                                           mean_g, mean_gx)};
}

/// Like AddGradient, for the last `rest` columns before those given, fewer than a vector.
template <Output kOutput, bool kReadX, bool kColumns, class D, class T, class C = Compute<T>>
HWY_INLINE void AddLastGradient(D d, const GradientRow<T> next_end, int64_t rest,
                                const MapVectors<D>& map, const GradientArgs<C>& args_end,
                                C* dgain_end, C* dbias_end, Vec<D>& sum_g, Vec<D>& sum_g_xhat) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const GradientRow<T> next = next_end.At(-lanes);
  // Null arrays are not offset.
  const int64_t columns = kColumns ? lanes : 0;
  const auto mask = LastLanes(d, rest);
  const Vec<D> xhat = XhatOf<kReadX>(d, next.x, map.mean, map.rstd, map.offset);
  const GradientArgs<C> args = args_end.At(-lanes);
  AddGradientSums<kOutput, kReadX, kColumns>(
      d, hn::IfThenElseZero(mask, Read(d, next.dy)), hn::IfThenElseZero(mask, xhat),
      GainOf<kOutput>(d, args), args, dgain_end - columns, dbias_end - columns, sum_g, sum_g_xhat);
}

/// Arguments of BackwardChunk: the row that is summed (`next`) and the row whose results are
/// written.
template <class T>
struct BackwardWork {
  using C = Compute<T>;
  GradientRow<T> next, row;
  const RowCoefficients<C>* next_map;
  const GradientMap<C>* map;
  const C* next_gain;  // at the column of `next`
  const C* gain;       // at the column of `row`
  C* dgain;
  C* dbias;
  T* dx;
  C scale, neg_slope;

  HWY_INLINE void Advance(int64_t c) {
    next = next.At(c);
    row = row.At(c);
    next_gain += c;
    gain += c;
    dgain += c;
    dbias += c;
    dx += c;
  }
};

/// Main loop of backward, like ForwardChunkLanes.
template <Output kOutput, bool kReadX, bool kColumns, bool kStream, bool kSplitSums, bool kSplit,
          class D, class T, class C = Compute<T>>
HWY_NOINLINE LaneSums<C> BackwardChunkLanes(const BackwardWork<T>& work, int64_t vectors,
                                            int64_t more, int64_t rest) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const GradientRow<T> next = work.next, row = work.row;
  const MapVectors<D> next_map(d, *work.next_map), map(d, work.map->map);
  const Vec<D> mean_g = hn::Set(d, work.map->mean_g), mean_gx = hn::Set(d, work.map->mean_g_xhat);
  const GradientArgs<C> next_args{work.next_gain, work.scale, work.neg_slope};
  const GradientArgs<C> args{work.gain, work.scale, work.neg_slope};
  C* const dgain = work.dgain;
  C* const dbias = work.dbias;
  T* const dx = work.dx;
  Vec<D> g0 = hn::Zero(d), g1 = hn::Zero(d), gx0 = hn::Zero(d), gx1 = hn::Zero(d);
  const auto add = [&](int64_t a, Vec<D>& g, Vec<D>& gx) HWY_ATTR {
    AddGradient<kOutput, kReadX, kColumns>(d, next.At(a), next_map, next_args.At(a), dgain + a,
                                           dbias + a, g, gx);
  };
  const auto put = [&](int64_t a) HWY_ATTR {
    Put<kStream>(d,
                 InputGradient<kOutput, kReadX>(d, row.dy + a, row.x + a, args.At(a), map.mean,
                                                map.rstd, map.offset, mean_g, mean_gx),
                 dx + a);
  };
  int64_t c = 0;
  for (const int64_t end = (vectors & ~int64_t{1}) * lanes; c < end; c += 2 * lanes) {
    if constexpr (kStream) {
      PrefetchTwo(d, next.dy + c);
      if constexpr (kReadX) PrefetchTwo(d, next.x + c);
    }
    if constexpr (kSplitsPairs<D, T>) {
      AddGradientPair<kOutput, kReadX, kColumns, kSplitSums>(
          d, next.At(c), next_map, next_args.At(c), dgain + c, dbias + c, g0, gx0, g1, gx1);
      PutPair<kStream>(d,
                       InputGradientPairBy<kOutput, kReadX>(
                           d, row.At(c), GainPairOf<kOutput, T, kSplit>(d, args.At(c)), args,
                           map.mean, map.rstd, map.offset, mean_g, mean_gx),
                       dx + c);
    } else {  // one after the other, to use fewer registers
      const int64_t b = c + lanes;
      add(c, g0, gx0);
      put(c);
      add(b, g1, gx1);
      put(b);
    }
  }
  if constexpr (kStream) {
    PrefetchTwo(d, next.dy + c);
    if constexpr (kReadX) PrefetchTwo(d, next.x + c);
  }
  if (vectors & 1) put(c);
  // Keeps the order of sums independent of the alignment of results.
  const int64_t left = (vectors & 1) + more;
  if (left == 2) {
    AddGradientPair<kOutput, kReadX, kColumns, kSplitSums>(d, next.At(c), next_map, next_args.At(c),
                                                           dgain + c, dbias + c, g0, gx0, g1, gx1);
  } else if (left == 1) {
    add(c, g0, gx0);
  }
  c += left * lanes;
  if (rest > 0) {
    c += rest;
    AddLastGradient<kOutput, kReadX, kColumns>(d, next.At(c), rest, next_map, next_args.At(c),
                                               dgain + c, dbias + c, g1, gx1);
  }
  return AddLanes(d, hn::Add(g0, g1), hn::Add(gx0, gx1));
}

/// Calls BackwardChunkLanes often enough to keep each lane's sums short.
template <Output kOutput, bool kReadX, bool kColumns, bool kStream, bool kSplitSums, bool kSplit,
          class D, class T>
HWY_INLINE RowSums BackwardChunk(BackwardWork<T>& work, int64_t vectors, int64_t more,
                                 int64_t rest) {
  RowSums sums;
  for (; vectors > kTurnVectors<D>; vectors -= kTurnVectors<D>) {
    sums.Add(BackwardChunkLanes<kOutput, kReadX, kColumns, kStream, kSplitSums, kSplit, D>(
        work, kTurnVectors<D>, 0, 0));
    work.Advance(kTurnVectors<D> * static_cast<int64_t>(hn::Lanes(D())));
  }
  sums.Add(BackwardChunkLanes<kOutput, kReadX, kColumns, kStream, kSplitSums, kSplit, D>(
      work, vectors, more, rest));
  return sums;
}

/// Returns the sums of `cols` columns in the order of BackwardChunkLanes, without writing results.
template <Output kOutput, bool kReadX, bool kColumns, class D, class T, class C = Compute<T>>
HWY_NOINLINE LaneSums<C> SumGradientChunkLanes(const GradientRow<T> next, int64_t cols,
                                               const RowCoefficients<C>& next_map,
                                               const GradientArgs<C> args, C* dgain, C* dbias) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const MapVectors<D> map(d, next_map);
  Vec<D> g0 = hn::Zero(d), g1 = hn::Zero(d), gx0 = hn::Zero(d), gx1 = hn::Zero(d);
  int64_t c = 0;
  for (; c + 2 * lanes <= cols; c += 2 * lanes) {
    AddGradientPair<kOutput, kReadX, kColumns, false>(d, next.At(c), map, args.At(c), dgain + c,
                                                      dbias + c, g0, gx0, g1, gx1);
  }
  if (c + lanes <= cols) {
    AddGradient<kOutput, kReadX, kColumns>(d, next.At(c), map, args.At(c), dgain + c, dbias + c, g0,
                                           gx0);
    c += lanes;
  }
  if (c < cols) {
    AddLastGradient<kOutput, kReadX, kColumns>(d, next.At(cols), cols - c, map, args.At(cols),
                                               dgain + cols, dbias + cols, g1, gx1);
  }
  return AddLanes(d, hn::Add(g0, g1), hn::Add(gx0, gx1));
}

template <Output kOutput, bool kReadX, bool kColumns, class D, class T, class C = Compute<T>>
HWY_INLINE RowSums SumGradientChunk(const GradientRow<T> row, int64_t cols,
                                    const RowCoefficients<C>& map, const GradientArgs<C>& args,
                                    C* dgain, C* dbias) {
  constexpr int64_t kTurn = kTurnVectors<D> * hn::MaxLanes(D());
  const auto run = [&](int64_t c, int64_t n) HWY_ATTR {
    return SumGradientChunkLanes<kOutput, kReadX, kColumns, D>(row.At(c), n, map, args.At(c),
                                                               dgain + c, dbias + c);
  };
  RowSums sums;
  int64_t c = 0;
  for (; cols - c >= kTurn + static_cast<int64_t>(hn::Lanes(D())); c += kTurn) {
    sums.Add(run(c, kTurn));
  }
  sums.Add(run(c, cols - c));
  return sums;
}

template <Output kOutput, bool kReadX, bool kColumns, class D, class T, class C = Compute<T>>
HWY_INLINE RowSums SumGradientRow(const GradientRow<T> row, int64_t cols,
                                  const RowCoefficients<C>& map, const GradientArgs<C>& args,
                                  C* dgain, C* dbias) {
  RowSums sums;
  for (int64_t c = 0; c < cols; c += kChunk) {
    sums.Add(SumGradientChunk<kOutput, kReadX, kColumns, D>(row.At(c), std::min(kChunk, cols - c),
                                                            map, args.At(c), dgain + c, dbias + c));
  }
  return sums;
}

/// Writes dx of `cols` columns, without sums.
template <Output kOutput, bool kReadX, bool kStream, class D, class T, class C = Compute<T>>
HWY_NOINLINE void InputGradientRow(D d, const GradientRow<T> row, int64_t cols,
                                   const GradientMap<C>& map, const GradientArgs<C> args, T* dx,
                                   T* carry, bool carried, bool follows) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const MapVectors<D> m(d, map.map);
  const Vec<D> mean_g = hn::Set(d, map.mean_g), mean_gx = hn::Set(d, map.mean_g_xhat);
  RowEnds<kStream, D, T> ends;
  ends.layout = RowLayout<kStream, D, T>(d, dx, cols);
  const int64_t last = cols - lanes, end = ends.layout.lead + ends.layout.vectors * lanes;
  Write(d,
        InputGradient<kOutput, kReadX>(d, row.dy, row.x, args, m.mean, m.rstd, m.offset, mean_g,
                                       mean_gx),
        ends.head);
  Write(d,
        InputGradient<kOutput, kReadX>(d, row.dy + last, row.x + last, args.At(last), m.mean,
                                       m.rstd, m.offset, mean_g, mean_gx),
        ends.tail);
  ends.StoreHead(d, dx, carry, carried);
  for (int64_t c = ends.layout.lead; c < end; c += lanes) {
    Put<kStream>(d,
                 InputGradient<kOutput, kReadX>(d, row.dy + c, row.x + c, args.At(c), m.mean,
                                                m.rstd, m.offset, mean_g, mean_gx),
                 dx + c);
  }
  ends.StoreTail(d, dx, cols, carry, follows);
}

/// Keeps dgain and dbias in the order of SplitPairs during its lifetime, if AddGradientPair
/// requires that.
template <bool kColumns, class D, class T>
class SplitColumns {
  using C = Compute<T>;
  static constexpr bool kSplit = kColumns && kSplitsPairs<D, T>;

 public:
  HWY_INLINE SplitColumns(D d, int64_t cols, C* dgain, C* dbias)
      : cols_(cols), dgain_(dgain), dbias_(dbias) {
    if constexpr (!kSplit) return;
    SplitPairs(d, dgain, cols, dgain);
    SplitPairs(d, dbias, cols, dbias);
  }
  HWY_INLINE ~SplitColumns() {
    if constexpr (!kSplit) return;
    JoinPairs(D(), cols_, dgain_);
    JoinPairs(D(), cols_, dbias_);
  }
  SplitColumns(const SplitColumns&) = delete;
  SplitColumns& operator=(const SplitColumns&) = delete;

 private:
  int64_t cols_;
  C* dgain_;
  C* dbias_;
};

/// Computes BackwardRows for cols >= lanes, with dx.
template <Output kOutput, bool kReadX, bool kColumns, bool kStream, class D, class T>
HWY_NOINLINE void BackwardRowsWide(D d, const RowsBackward<T>& args, int64_t begin, int64_t end,
                                   Compute<T>* dgain, Compute<T>* dbias) {
  using C = Compute<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t cols = args.cols, block = GradientRowsPerBlock<kStream>(cols);
  const double reciprocal = 1 / static_cast<double>(cols);
  const GradientArgs<C> out{args.gain, args.scale, -args.scale * args.slope};
  const bool packed = args.dx_stride == cols;
  const bool even =
      cols % lanes == 0 && (!kStream || (args.dx_stride % lanes == 0 &&
                                         RowLayout<kStream, D, T>(d, args.dx, cols).lead == 0));
  // No sums if neither dx nor dgain and dbias need them.
  const bool summing = kColumns || args.recipe.via_mean || args.recipe.via_scale;
  RowEnds<kStream, D, T> ends[kMaxRows];
  HWY_ALIGN T carry[2 * hn::MaxLanes(D())] = {};
  for (int64_t i = 0; i < block; ++i) ends[i].layout.vectors = cols / lanes;
  GradientMap<C> maps[kMaxRows];
  RowSums sums[kMaxRows];
  RowCoefficients<C> next_maps[kMaxRows];
  constexpr bool kSplit = kSplitsPairs<D, T> && kOutput == Output::kAffine;
  SplitParameters<D, T> split_gain;
  const bool split = kSplit && cols <= kMaxSplitColumns && end - begin >= kMinSplitRows;
  if (split) SplitPairs(d, out.gain, cols, split_gain.numbers);
  const SplitColumns<kColumns, D, T> split_columns(d, cols, dgain, dbias);
  BackwardWork<T> work;
  work.scale = out.scale;
  work.neg_slope = out.neg_slope;

  const auto row_at = [&](int64_t r) HWY_ATTR {
    return GradientRow<T>{args.dy + r * args.dy_stride, args.x + r * args.x_stride};
  };
  const auto sum_row = [&](int64_t r) HWY_ATTR {
    const RowCoefficients<C> map = SavedMoments(args, r);
    RowSums row_sums;
    if (summing) {
      row_sums =
          SumGradientRow<kOutput, kReadX, kColumns, D>(row_at(r), cols, map, out, dgain, dbias);
    }
    return FinishGradient(args, r, map, row_sums, reciprocal);
  };
  int64_t r = begin, summed = std::min(block, end - begin);
  for (int64_t i = 0; i < summed; ++i) maps[i] = sum_row(r + i);
  for (; summing && r + 2 * block <= end; r += block) {
    if (!even) {
      for (int64_t i = 0; i < block; ++i) {
        const GradientRow<T> row = row_at(r + i);
        const int64_t last = cols - lanes;
        const MapVectors<D> m(d, maps[i].map);
        const Vec<D> mean_g = hn::Set(d, maps[i].mean_g);
        const Vec<D> mean_gx = hn::Set(d, maps[i].mean_g_xhat);
        ends[i].layout = RowLayout<kStream, D, T>(d, args.dx + (r + i) * args.dx_stride, cols);
        if (kStream) {
          Write(d,
                InputGradient<kOutput, kReadX>(d, row.dy, row.x, out, m.mean, m.rstd, m.offset,
                                               mean_g, mean_gx),
                ends[i].head);
        }
        Write(d,
              InputGradient<kOutput, kReadX>(d, row.dy + last, row.x + last, out.At(last), m.mean,
                                             m.rstd, m.offset, mean_g, mean_gx),
              ends[i].tail);
      }
    }
    for (int64_t i = 0; i < block; ++i) {
      next_maps[i] = SavedMoments(args, r + block + i);
      sums[i] = RowSums();
    }
    for (int64_t c = 0; c < cols; c += kChunk) {
      const int64_t width = std::min(kChunk, cols - c), whole = width / lanes;
      for (int64_t i = 0; i < block; ++i) {
        const int64_t from = ends[i].layout.lead + c;
        const int64_t vectors = std::clamp<int64_t>(ends[i].layout.vectors - c / lanes, 0, whole);
        if (!kStream && args.ask) {
          PrefetchShortAhead(args.dx + (r + i) * args.dx_stride + c, width);
        }
        work.next = row_at(r + block + i).At(c);
        work.row = row_at(r + i).At(from);
        work.next_map = &next_maps[i];
        work.map = &maps[i];
        work.dgain = dgain + c;
        work.dbias = dbias + c;
        work.dx = args.dx + (r + i) * args.dx_stride + from;
        const auto run = [&](auto split_sums, auto split_row) HWY_ATTR {
          work.next_gain = (split_sums() ? split_gain.numbers : out.gain) + c;
          work.gain = (split_row() ? split_gain.numbers : out.gain) + from;
          sums[i].Add(
              BackwardChunk<kOutput, kReadX, kColumns, kStream, split_sums(), split_row(), D>(
                  work, vectors, whole - vectors, width % lanes));
        };
        constexpr std::bool_constant<kSplit> kIsSplit;
        if (!split) {
          run(std::false_type(), std::false_type());
        } else if (ends[i].layout.lead == 0) {
          run(kIsSplit, kIsSplit);
        } else {
          run(kIsSplit, std::false_type());
        }
      }
    }
    if (!even) {
      for (int64_t i = 0; i < block; ++i) {
        T* dx = args.dx + (r + i) * args.dx_stride;
        ends[i].StoreHead(d, dx, carry, packed && r + i > begin);
        ends[i].StoreTail(d, dx, cols, carry, packed);
      }
    }
    for (int64_t i = 0; i < block; ++i) {
      maps[i] = FinishGradient(args, r + block + i, next_maps[i], sums[i], reciprocal);
    }
    summed = block;
  }
  for (int64_t i = 0; r < end; ++i, ++r) {
    if (i >= summed) maps[0] = sum_row(r);
    InputGradientRow<kOutput, kReadX, kStream>(d, row_at(r), cols, maps[i < summed ? i : 0], out,
                                               args.dx + r * args.dx_stride, carry,
                                               packed && r > begin, packed && r + 1 < end);
  }
  FinishStores<kStream>();
}

/// Computes BackwardRows for cols >= lanes, without dx.
template <Output kOutput, class D, class T>
void GradientColumnsWide(D d, const RowsBackward<T>& args, int64_t begin, int64_t end,
                         Compute<T>* dgain, Compute<T>* dbias) {
  const SplitColumns<true, D, T> split_columns(d, args.cols, dgain, dbias);
  const GradientArgs<Compute<T>> out{args.gain, args.scale, -args.scale * args.slope};
  for (int64_t r = begin; r < end; ++r) {
    SumGradientRow<kOutput, true, true, D>(
        GradientRow<T>{args.dy + r * args.dy_stride, args.x + r * args.x_stride}, args.cols,
        SavedMoments(args, r), out, dgain, dbias);
  }
}

/// Implements SumGradientChunks.
template <Output kOutput, bool kReadX, class D, class T>
void SumRowGradientChunks(D, const RowsBackward<T>& args, int64_t row, int64_t begin, int64_t end,
                          double* sums) {
  using C = Compute<T>;
  const GradientArgs<C> out{args.gain, args.scale, -args.scale * args.slope};
  const GradientRow<T> next{args.dy + row * args.dy_stride, args.x + row * args.x_stride};
  const RowCoefficients<C> map = SavedMoments(args, row);
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t c = chunk * kChunk, width = std::min(kChunk, args.cols - c);
    RowSums part;
    part.Add(SumGradientChunk<kOutput, kReadX, false, D>(
        next.At(c), width, map, out.At(c), static_cast<C*>(nullptr), static_cast<C*>(nullptr)));
    sums[2 * chunk] = part.first;
    sums[2 * chunk + 1] = part.second;
  }
}

/// Computes GradientTile for kRows rows from `row` on, whose sums begin at `sums`. Reads and writes
/// dgain and dbias once for all of them.
template <Output kOutput, bool kReadX, bool kDx, bool kColumns, bool kStream, int64_t kRows,
          class D, class T>
HWY_NOINLINE void TileOfRows(D d, const RowsBackward<T>& args, int64_t row, int64_t first,
                             int64_t last, const double* sums, Compute<T>* dgain,
                             Compute<T>* dbias) {
  using C = Compute<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t cols = last - first;
  const GradientArgs<C> out =
      GradientArgs<C>{args.gain, args.scale, -args.scale * args.slope}.At(first);
  GradientRow<T> in[kRows];
  T* dx[kRows];
  RowEnds<kStream, D, T> ends[kDx ? kRows : 1];
  Vec<D> mean[kRows], rstd[kRows], offset[kRows], mean_g[kRows], mean_gx[kRows];
  for (int64_t i = 0; i < kRows; ++i) {
    const int64_t r = row + i;
    in[i] = GradientRow<T>{args.dy + r * args.dy_stride, args.x + r * args.x_stride}.At(first);
    RowSums row_sums;
    if constexpr (kDx) {
      dx[i] = args.dx + r * args.dx_stride + first;
      row_sums = {sums[2 * i], sums[2 * i + 1]};
    }
    const GradientMap<C> map = FinishGradient(args, r, SavedMoments(args, r), row_sums,
                                              1 / static_cast<double>(args.cols));
    mean[i] = hn::Set(d, map.map.mean);
    rstd[i] = hn::Set(d, map.map.rstd);
    offset[i] = hn::Set(d, map.map.offset);
    mean_g[i] = hn::Set(d, map.mean_g);
    mean_gx[i] = hn::Set(d, map.mean_g_xhat);
  }
  // All rows of dx have the same alignment, or kStream is false.
  const RowLayout<kStream, D, T> layout(d, kDx ? dx[0] : nullptr, cols);

  // Processes the vector at column c. Unless `whole`, only the lanes in `only` add to dgain and
  // dbias.
  const auto work = [&](int64_t c, const auto& put, auto whole, auto only) HWY_ATTR {
    Vec<D> gain_sum = hn::Zero(d), bias_sum = hn::Zero(d);
    if constexpr (kColumns) {
      gain_sum = hn::LoadU(d, dgain + c);
      bias_sum = hn::LoadU(d, dbias + c);
    }
    for (int64_t i = 0; i < kRows; ++i) {
      const Vec<D> dy = Read(d, in[i].dy + c);
      const Vec<D> xhat = XhatOf<kReadX>(d, in[i].x + c, mean[i], rstd[i], offset[i]);
      if constexpr (kColumns && whole()) {
        gain_sum = hn::MulAdd(dy, xhat, gain_sum);
        bias_sum = hn::Add(dy, bias_sum);
      } else if constexpr (kColumns) {
        gain_sum =
            hn::MulAdd(hn::IfThenElseZero(only, dy), hn::IfThenElseZero(only, xhat), gain_sum);
        bias_sum = hn::Add(hn::IfThenElseZero(only, dy), bias_sum);
      }
      if constexpr (kDx) {
        const GradientArgs<C> here = out.At(c);
        put(i, InputGradientOf<kOutput, kReadX>(d, dy, xhat, GainOf<kOutput>(d, here), here,
                                                rstd[i], mean_g[i], mean_gx[i]));
      }
    }
    if constexpr (kColumns) {
      hn::StoreU(gain_sum, d, dgain + c);
      hn::StoreU(bias_sum, d, dbias + c);
    }
  };
  // Processes the two vectors at column c.
  [[maybe_unused]] const auto work_pair = [&](int64_t c) HWY_ATTR {
    VectorPair<D> gain_sum{hn::Zero(d), hn::Zero(d)}, bias_sum = gain_sum;
    if constexpr (kColumns) {
      gain_sum = ReadParameterPair<T, false>(d, dgain + c);
      bias_sum = ReadParameterPair<T, false>(d, dbias + c);
    }
    const VectorPair<D> gain = GainPairOf<kOutput, T, false>(d, out.At(c));
    for (int64_t i = 0; i < kRows; ++i) {
      const VectorPair<D> dy = ReadPair(d, in[i].dy + c);
      const VectorPair<D> xhat = XhatPairOf<kReadX>(d, in[i].x + c, mean[i], rstd[i], offset[i]);
      if constexpr (kColumns) {
        gain_sum.first = hn::MulAdd(dy.first, xhat.first, gain_sum.first);
        gain_sum.second = hn::MulAdd(dy.second, xhat.second, gain_sum.second);
        bias_sum.first = hn::Add(dy.first, bias_sum.first);
        bias_sum.second = hn::Add(dy.second, bias_sum.second);
      }
      if constexpr (kDx) {
        const auto of = [&](Vec<D> dy_of, Vec<D> xhat_of, Vec<D> gain_of) HWY_ATTR {
          return InputGradientOf<kOutput, kReadX>(d, dy_of, xhat_of, gain_of, out, rstd[i],
                                                  mean_g[i], mean_gx[i]);
        };
        PutPair<kStream>(d,
                         VectorPair<D>{of(dy.first, xhat.first, gain.first),
                                       of(dy.second, xhat.second, gain.second)},
                         dx[i] + c);
      }
    }
    if constexpr (kColumns) {
      hn::StoreInterleaved2(gain_sum.first, gain_sum.second, d, dgain + c);
      hn::StoreInterleaved2(bias_sum.first, bias_sum.second, d, dbias + c);
    }
  };
  constexpr std::true_type kWhole;
  constexpr std::false_type kPart;
  const auto all = hn::FirstN(d, static_cast<size_t>(lanes));
  if (layout.lead > 0) {
    work(
        0, [&](int64_t i, Vec<D> v) HWY_ATTR { Write(d, v, ends[i].head); }, kPart,
        hn::FirstN(d, static_cast<size_t>(layout.lead)));
  }
  if (layout.rest > 0) {
    work(
        cols - lanes, [&](int64_t i, Vec<D> v) HWY_ATTR { Write(d, v, ends[i].tail); }, kPart,
        LastLanes(d, layout.rest));
  }
  const int64_t end = layout.lead + layout.vectors * lanes;
  int64_t c = layout.lead;
  if constexpr (kSplitsPairs<D, T>) {
    for (; c + 2 * lanes <= end; c += 2 * lanes) work_pair(c);
  }
  for (; c < end; c += lanes) {
    work(c, [&](int64_t i, Vec<D> v) HWY_ATTR { Put<kStream>(d, v, dx[i] + c); }, kWhole, all);
  }
  if constexpr (kDx) {
    for (int64_t i = 0; i < kRows; ++i) {
      ends[i].layout = layout;
      ends[i].StoreHead(d, dx[i], static_cast<T*>(nullptr), false);
      ends[i].StoreTail(d, dx[i], cols, static_cast<T*>(nullptr), false);
    }
  }
}

/// Computes GradientTile, kRows rows at a time.
template <Output kOutput, bool kReadX, bool kDx, bool kColumns, bool kStream, int64_t kRows,
          class D, class T>
HWY_INLINE void TileInGroups(D d, const RowsBackward<T>& args, int64_t begin, int64_t end,
                             int64_t first, int64_t last, const double* sums, Compute<T>* dgain,
                             Compute<T>* dbias) {
  int64_t r = begin;
  const bool alike = !kStream || args.dx_stride * static_cast<int64_t>(sizeof(T)) %
                                         static_cast<int64_t>(hn::Lanes(d) * sizeof(T)) ==
                                     0;
  for (; alike && r + kRows <= end; r += kRows) {
    TileOfRows<kOutput, kReadX, kDx, kColumns, kStream, kRows>(
        d, args, r, first, last, sums + 2 * (r - begin), dgain, dbias);
  }
  for (; r < end; ++r) {
    TileOfRows<kOutput, kReadX, kDx, kColumns, kStream, 1>(d, args, r, first, last,
                                                           sums + 2 * (r - begin), dgain, dbias);
  }
  FinishStores<kStream>();
}

/// Implements GradientTile.
template <Output kOutput, bool kReadX, bool kDx, bool kColumns, bool kStream, class D, class T>
void GradientTileWide(D d, const RowsBackward<T>& args, int64_t begin, int64_t end, int64_t first,
                      int64_t last, const double* sums, Compute<T>* dgain, Compute<T>* dbias) {
  // Only targets with the widest vectors have enough registers for four rows.
  if constexpr (hn::MaxLanes(D()) * sizeof(Compute<T>) >= 64) {
    if (FirstCacheHoldsManyRows()) {
      TileInGroups<kOutput, kReadX, kDx, kColumns, kStream, 4>(d, args, begin, end, first, last,
                                                               sums, dgain, dbias);
      return;
    }
  }
  TileInGroups<kOutput, kReadX, kDx, kColumns, kStream, 2>(d, args, begin, end, first, last, sums,
                                                           dgain, dbias);
}

}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_ROWS_ROWS_INL_H_
