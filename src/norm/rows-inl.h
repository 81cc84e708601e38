// The arithmetic of every norm over rows: one loop over columns that finishes row r while it takes
// the sums of row r + 1, so that loads, arithmetic and stores are mixed evenly and memory is read
// once. Compiled once for each target, in the namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_ROWS_INL_H_
#undef PLANISH_SRC_NORM_ROWS_INL_H_
#else
#define PLANISH_SRC_NORM_ROWS_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "src/norm/moments.h"
#include "src/norm/rows.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {

template <class D>
using OneLane = hn::CappedTag<hn::TFromD<D>, 1>;

// How far ahead of its use memory is asked for, when rows come from there.
inline constexpr int64_t kPrefetchBytes = 4096;

/// Asks for the two vectors at `ahead`.
template <class D, class T>
HWY_INLINE void PrefetchTwo(D d, const T* ahead) {
  constexpr size_t kBytes = 2 * hn::MaxLanes(D()) * sizeof(T);
  hwy::Prefetch(ahead);
  if constexpr (kBytes > 64) hwy::Prefetch(ahead + hn::Lanes(d));
}

template <bool kStream, class D, class T>
HWY_INLINE void Put(D d, Vec<D> v, T* p) {
  if constexpr (kStream) {
    WriteStreaming(d, v, p);
  } else {
    Write(d, v, p);
  }
}

/// One vector of results, from where it was put to where it belongs.
template <class D>
HWY_INLINE void StreamCopy(D d, const hn::TFromD<D>* from, hn::TFromD<D>* to) {
  hn::Stream(hn::LoadU(d, from), d, to);
}
template <class D, IsHalf T>
HWY_INLINE void StreamCopy(D, const T* from, T* to) {
  hn::Stream(hn::LoadU(Half<D>(), reinterpret_cast<const uint16_t*>(from)), Half<D>(),
             reinterpret_cast<uint16_t*>(to));
}

/// Where the vectors of an output row lie. Streaming stores need whole aligned vectors: `lead`
/// elements come before the first, `rest` after the last. Ordinary stores need none of this:
/// lead is 0, and the last vector overlaps the one before.
template <bool kStream, class D, class T>
struct RowLayout {
  int64_t lead, vectors, rest;

  RowLayout(D d, const T* out, int64_t cols) {
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    lead = kStream ? static_cast<int64_t>((-reinterpret_cast<uintptr_t>(out) &
                                           (lanes * sizeof(T) - 1)) / sizeof(T))
                   : 0;
    vectors = (cols - lead) / lanes;
    rest = (cols - lead) % lanes;
  }
};

/// The vectors at the two ends of an output row. They are computed before the row is written, for
/// it may be written over its input, and stored in the order of addresses.
template <bool kStream, class D, class T>
struct RowEnds {
  static constexpr size_t kLanes = hn::MaxLanes(D());
  HWY_ALIGN T head[2 * kLanes] = {};
  HWY_ALIGN T tail[2 * kLanes] = {};
  // The vector that holds the end of a row and the start of the next.
  HWY_ALIGN T carry[2 * kLanes] = {};
  bool carried = false;

  HWY_INLINE void StoreHead(D d, T* out, const RowLayout<kStream, D, T>& layout) {
    if (!kStream || layout.lead == 0) return;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    if (carried) {
      std::memcpy(carry + lanes - layout.lead, head, kLanes * sizeof(T));
      StreamCopy(d, carry, out + layout.lead - lanes);
    } else {
      for (int64_t c = 0; c < layout.lead; ++c) out[c] = head[c];
    }
  }

  /// `follows`: another row comes after this one, right behind it in memory.
  HWY_INLINE void StoreTail(D d, T* out, int64_t cols, const RowLayout<kStream, D, T>& layout,
                            bool follows) {
    carried = false;
    if (layout.rest == 0) return;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const T* last = tail + lanes - layout.rest;
    if (!kStream) {
      std::memcpy(out + cols - lanes, tail, kLanes * sizeof(T));
    } else if (follows) {
      std::memcpy(carry, last, kLanes * sizeof(T));
      carried = true;
    } else {
      for (int64_t c = 0; c < layout.rest; ++c) out[cols - layout.rest + c] = last[c];
    }
  }
};

/// Makes the streaming stores visible to whoever is told that the rows are done.
template <bool kStream>
HWY_INLINE void FinishStores() {
  if constexpr (kStream) hwy::FlushStream();
}

/// Ones in the last `n` lanes.
template <class D>
HWY_INLINE hn::Mask<D> LastLanes(D d, int64_t n) {
  return hn::Not(hn::FirstN(d, hn::Lanes(d) - static_cast<size_t>(n)));
}

// --- Forward ---

template <class C>
struct OutputArgs {
  const C* gain;
  const C* bias;
  C scale;      // of Output::kAdaptive
  C neg_slope;  // -scale * slope

  HWY_INLINE OutputArgs At(int64_t c) const { return {gain + c, bias + c, scale, neg_slope}; }
};

template <Output kOutput, bool kCentre, class D, class T>
HWY_INLINE Vec<D> Normalise(D d, const T* x, const OutputArgs<hn::TFromD<D>>& out, Vec<D> mean,
                            Vec<D> rstd, Vec<D> offset) {
  Vec<D> xhat = Read(d, x);
  if constexpr (kCentre) {
    xhat = hn::MulAdd(hn::Sub(xhat, mean), rstd, offset);
  } else {
    xhat = hn::Mul(xhat, rstd);
  }
  if constexpr (kOutput == Output::kAffine) {
    return hn::MulAdd(xhat, hn::LoadU(d, out.gain), hn::LoadU(d, out.bias));
  } else if constexpr (kOutput == Output::kAdaptive) {
    return hn::Mul(hn::MulAdd(xhat, hn::Set(d, out.neg_slope), hn::Set(d, out.scale)), xhat);
  } else {
    return xhat;
  }
}

template <bool kCentre, class D, class T>
HWY_INLINE void AddSums(D d, const T* x, Vec<D> shift, Vec<D>& first, Vec<D>& second) {
  Vec<D> v = Read(d, x);
  if constexpr (kCentre) {
    v = hn::Sub(v, shift);
    first = hn::Add(first, v);
  }
  second = hn::MulAdd(v, v, second);
}

/// A number near the mean of a row of at least as many columns as lanes: the mean of two vectors.
/// Of a constant row it is the constant: each sum doubles, which is exact.
template <bool kCentre, class D, class T>
HWY_INLINE hn::TFromD<D> ShiftOf(D d, const T* x, int64_t cols) {
  using C = hn::TFromD<D>;
  if constexpr (!kCentre) return C{0};
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec<D> v = hn::Add(Read(d, x), Read(d, x + (cols - lanes) / 2));
  return Sum(d, v) * (C{0.5} / static_cast<C>(lanes));
}

/// The loop. Adds to `sums` those of `next_cols` columns at `next`, and writes `vectors` vectors of
/// results from `x` to `y`. Either may be none.
template <Output kOutput, bool kCentre, bool kStream, class D, class T>
HWY_INLINE void ForwardChunk(D d, const T* next, int64_t next_cols, hn::TFromD<D> shift_,
                             RowSums& sums, const T* x, const RowMap<hn::TFromD<D>>& map,
                             const OutputArgs<hn::TFromD<D>> out, int64_t vectors, T* y) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec<D> shift = hn::Set(d, shift_), mean = hn::Set(d, map.mean);
  const Vec<D> rstd = hn::Set(d, map.rstd), offset = hn::Set(d, map.offset);
  Vec<D> first0 = hn::Zero(d), first1 = hn::Zero(d), second0 = hn::Zero(d), second1 = hn::Zero(d);
  const int64_t next_whole = next_cols - next_cols % lanes, x_whole = vectors * lanes;
  int64_t c = 0;
  for (const int64_t end = std::min(next_whole, x_whole); c + 2 * lanes <= end; c += 2 * lanes) {
    if constexpr (kStream) PrefetchTwo(d, next + c + kPrefetchBytes / sizeof(T));
    AddSums<kCentre>(d, next + c, shift, first0, second0);
    Put<kStream>(d, Normalise<kOutput, kCentre>(d, x + c, out.At(c), mean, rstd, offset), y + c);
    AddSums<kCentre>(d, next + c + lanes, shift, first1, second1);
    Put<kStream>(d,
                 Normalise<kOutput, kCentre>(d, x + c + lanes, out.At(c + lanes), mean, rstd,
                                             offset),
                 y + c + lanes);
  }
  for (int64_t i = c; i < x_whole; i += lanes) {
    Put<kStream>(d, Normalise<kOutput, kCentre>(d, x + i, out.At(i), mean, rstd, offset), y + i);
  }
  if (next_cols == 0) return;
  for (; c + 2 * lanes <= next_whole; c += 2 * lanes) {
    AddSums<kCentre>(d, next + c, shift, first0, second0);
    AddSums<kCentre>(d, next + c + lanes, shift, first1, second1);
  }
  if (c < next_whole) AddSums<kCentre>(d, next + c, shift, first0, second0);
  if (next_whole < next_cols) {
    // The vector that ends with the row, without the lanes that have been counted.
    const auto mask = LastLanes(d, next_cols - next_whole);
    Vec<D> v = Read(d, next + next_cols - lanes);
    if constexpr (kCentre) v = hn::Sub(v, shift);
    v = hn::IfThenElseZero(mask, v);
    first1 = hn::Add(first1, v);
    second1 = hn::MulAdd(v, v, second1);
  }
  if constexpr (kCentre) sums.first += Sum(d, hn::Add(first0, first1));
  sums.second += Sum(d, hn::Add(second0, second1));
}

/// ForwardRows, for cols >= lanes. Without kMap only the moments.
template <Output kOutput, bool kCentre, bool kStream, bool kMap, class D, class T>
HWY_NOINLINE void ForwardRowsWide(D d, const RowsForward<T>& args, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t cols = args.cols;
  const OutputArgs<C> out{args.gain, args.bias, args.scale, -args.scale * args.slope};
  const bool packed = args.y_stride == cols;
  RowEnds<kStream, D, T> ends;
  RowMap<C> map;
  for (int64_t r = begin - 1; r < end; ++r) {
    const bool has_next = r + 1 < end, has_row = kMap && r >= begin;
    const T* next = args.x + (r + 1) * args.x_stride;
    const T* x = args.x + r * args.x_stride;
    T* y = has_row ? args.y + r * args.y_stride : nullptr;
    RowLayout<kStream, D, T> layout(d, y, cols);
    if (!has_row) layout = RowLayout<kStream, D, T>(d, nullptr, 0);
    if (has_row) {
      const Vec<D> mean = hn::Set(d, map.mean), rstd = hn::Set(d, map.rstd);
      const Vec<D> offset = hn::Set(d, map.offset);
      if (layout.lead > 0) {
        Write(d, Normalise<kOutput, kCentre>(d, x, out, mean, rstd, offset), ends.head);
      }
      if (layout.rest > 0) {
        const int64_t c = cols - lanes;
        Write(d, Normalise<kOutput, kCentre>(d, x + c, out.At(c), mean, rstd, offset), ends.tail);
      }
      ends.StoreHead(d, y, layout);
    }
    const C shift = has_next ? ShiftOf<kCentre>(d, next, cols) : C{0};
    RowSums sums;
    for (int64_t c = 0; c < cols; c += kChunk) {
      const int64_t width = std::min(kChunk, cols - c);
      const int64_t vectors =
          std::clamp<int64_t>(layout.vectors - c / lanes, 0, kChunk / lanes);
      ForwardChunk<kOutput, kCentre, kStream>(d, next + c, has_next ? width : 0, shift, sums,
                                              x + layout.lead + c, map, out.At(layout.lead + c),
                                              vectors, y + layout.lead + c);
    }
    if (has_row) ends.StoreTail(d, y, cols, layout, has_next && packed);
    if (has_next) map = FinishMoments(args, r + 1, static_cast<double>(shift), sums);
  }
  FinishStores<kStream>();
}

/// SumChunks.
template <class D, class T>
void SumRowChunks(D d, const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end,
                  double* sums) {
  const T* x = args.x + row * args.x_stride;
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t c = chunk * kChunk, width = std::min(kChunk, args.cols - c);
    RowSums part;
    if (args.recipe.centre) {
      const Compute<T> shift = ShiftOf<true>(d, x, args.cols);
      ForwardChunk<Output::kIdentity, true, false>(d, x + c, width, shift, part, x, {}, {}, 0,
                                                   static_cast<T*>(nullptr));
    } else {
      ForwardChunk<Output::kIdentity, false, false>(d, x + c, width, Compute<T>{0}, part, x, {}, {},
                                                    0, static_cast<T*>(nullptr));
    }
    sums[2 * chunk] = part.first;
    sums[2 * chunk + 1] = part.second;
  }
}

/// FinishRow.
template <class D, class T>
void FinishRowChunks(D d, const RowsForward<T>& args, int64_t row, const double* parts) {
  RowSums sums;
  for (int64_t chunk = 0; chunk * kChunk < args.cols; ++chunk) {
    sums.first += parts[2 * chunk];
    sums.second += parts[2 * chunk + 1];
  }
  const T* x = args.x + row * args.x_stride;
  const Compute<T> shift = args.recipe.centre ? ShiftOf<true>(d, x, args.cols) : Compute<T>{0};
  FinishMoments(args, row, static_cast<double>(shift), sums);
}

/// MapColumns.
template <Output kOutput, bool kCentre, bool kStream, class D, class T>
void MapRowColumns(D d, const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* x = args.x + row * args.x_stride + begin;
  T* y = args.y + row * args.y_stride + begin;
  const int64_t cols = end - begin;
  const OutputArgs<C> out = OutputArgs<C>{args.gain, args.bias, args.scale,
                                          -args.scale * args.slope}.At(begin);
  const RowMap<C> map = MapOf(args.mean ? args.mean[row] : C{0},
                              args.mean_lo ? args.mean_lo[row] : C{0}, args.rstd[row]);
  const Vec<D> mean = hn::Set(d, map.mean), rstd = hn::Set(d, map.rstd);
  const Vec<D> offset = hn::Set(d, map.offset);
  const RowLayout<kStream, D, T> layout(d, y, cols);
  RowEnds<kStream, D, T> ends;
  // The last columns of a row may be fewer than a vector, and one at its end reach into the columns
  // before, which another thread may have written over their input: by ones.
  if (cols < 2 * lanes) {
    const OneLane<D> one;
    for (int64_t c = 0; c < cols; ++c) {
      Write(one,
            Normalise<kOutput, kCentre>(one, x + c, out.At(c), hn::Set(one, map.mean),
                                        hn::Set(one, map.rstd), hn::Set(one, map.offset)),
            y + c);
    }
    return;
  }
  if (layout.lead > 0) {
    Write(d, Normalise<kOutput, kCentre>(d, x, out, mean, rstd, offset), ends.head);
  }
  if (layout.rest > 0) {
    const int64_t c = cols - lanes;
    Write(d, Normalise<kOutput, kCentre>(d, x + c, out.At(c), mean, rstd, offset), ends.tail);
  }
  ends.StoreHead(d, y, layout);
  RowSums none;
  ForwardChunk<kOutput, kCentre, kStream>(d, x, 0, C{0}, none, x + layout.lead, map,
                                          out.At(layout.lead), layout.vectors, y + layout.lead);
  ends.StoreTail(d, y, cols, layout, false);
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

template <Output kOutput, class D>
HWY_INLINE Vec<D> GradientOfXhat(D d, Vec<D> dy, Vec<D> xhat,
                                 const GradientArgs<hn::TFromD<D>>& args) {
  if constexpr (kOutput == Output::kAffine) {
    return hn::Mul(dy, hn::LoadU(d, args.gain));
  } else if constexpr (kOutput == Output::kAdaptive) {
    return hn::Mul(hn::MulAdd(xhat, hn::Set(d, args.neg_slope), hn::Set(d, args.scale)), dy);
  } else {
    return dy;
  }
}

/// Adds the terms of one vector to the sums of g and g * xhat, and to dgain and dbias. Lanes that
/// are zero in dy and xhat add nothing.
template <Output kOutput, bool kReadX, bool kColumns, class D>
HWY_INLINE void AddGradientSums(D d, Vec<D> dy, Vec<D> xhat,
                                const GradientArgs<hn::TFromD<D>>& args, hn::TFromD<D>* dgain,
                                hn::TFromD<D>* dbias, Vec<D>& sum_g, Vec<D>& sum_g_xhat) {
  if constexpr (kColumns) {
    hn::StoreU(hn::MulAdd(dy, xhat, hn::LoadU(d, dgain)), d, dgain);
    hn::StoreU(hn::Add(dy, hn::LoadU(d, dbias)), d, dbias);
  }
  const Vec<D> g = GradientOfXhat<kOutput>(d, dy, xhat, args);
  sum_g = hn::Add(sum_g, g);
  if constexpr (kReadX) sum_g_xhat = hn::MulAdd(g, xhat, sum_g_xhat);
}

template <bool kReadX, class D, class T>
HWY_INLINE Vec<D> XhatOf(D d, const T* x, Vec<D> mean, Vec<D> rstd, Vec<D> offset) {
  if constexpr (!kReadX) return hn::Zero(d);
  return hn::MulAdd(hn::Sub(Read(d, x), mean), rstd, offset);
}

template <Output kOutput, bool kReadX, class D, class T>
HWY_INLINE Vec<D> InputGradient(D d, const T* dy_, const T* x,
                                const GradientArgs<hn::TFromD<D>>& args, Vec<D> mean, Vec<D> rstd,
                                Vec<D> offset, Vec<D> mean_g, Vec<D> mean_g_xhat) {
  const Vec<D> dy = Read(d, dy_);
  const Vec<D> xhat = XhatOf<kReadX>(d, x, mean, rstd, offset);
  Vec<D> v = hn::Sub(GradientOfXhat<kOutput>(d, dy, xhat, args), mean_g);
  if constexpr (kReadX) v = hn::NegMulAdd(xhat, mean_g_xhat, v);
  return hn::Mul(v, rstd);
}

/// One row's arrays from some column on.
template <class T>
struct GradientRow {
  const T* dy;
  const T* x;

  HWY_INLINE GradientRow At(int64_t c) const { return {dy + c, x + c}; }
};

/// The loop of backward, as ForwardChunk.
template <Output kOutput, bool kReadX, bool kColumns, bool kStream, class D, class T>
HWY_INLINE void BackwardChunk(D d, const GradientRow<T> next, int64_t next_cols,
                              const RowMap<hn::TFromD<D>>& next_map,
                              const GradientArgs<hn::TFromD<D>> next_args, hn::TFromD<D>* dgain,
                              hn::TFromD<D>* dbias, RowSums& sums, const GradientRow<T> row,
                              const GradientMap<hn::TFromD<D>>& map,
                              const GradientArgs<hn::TFromD<D>> args, int64_t vectors, T* dx) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec<D> next_mean = hn::Set(d, next_map.mean), next_rstd = hn::Set(d, next_map.rstd);
  const Vec<D> next_offset = hn::Set(d, next_map.offset);
  const Vec<D> mean = hn::Set(d, map.map.mean), rstd = hn::Set(d, map.map.rstd);
  const Vec<D> offset = hn::Set(d, map.map.offset);
  const Vec<D> mean_g = hn::Set(d, map.mean_g), mean_g_xhat = hn::Set(d, map.mean_g_xhat);
  Vec<D> g0 = hn::Zero(d), g1 = hn::Zero(d), gx0 = hn::Zero(d), gx1 = hn::Zero(d);
  const int64_t next_whole = next_cols - next_cols % lanes, whole = vectors * lanes;
  int64_t c = 0;
  for (const int64_t end = std::min(next_whole, whole); c + 2 * lanes <= end; c += 2 * lanes) {
    if constexpr (kStream) {
      PrefetchTwo(d, next.dy + c + kPrefetchBytes / sizeof(T));
      if constexpr (kReadX) PrefetchTwo(d, next.x + c + kPrefetchBytes / sizeof(T));
    }
    AddGradientSums<kOutput, kReadX, kColumns>(
        d, Read(d, next.dy + c), XhatOf<kReadX>(d, next.x + c, next_mean, next_rstd, next_offset),
        next_args.At(c), dgain + c, dbias + c, g0, gx0);
    Put<kStream>(d,
                 InputGradient<kOutput, kReadX>(d, row.dy + c, row.x + c, args.At(c), mean, rstd,
                                                offset, mean_g, mean_g_xhat),
                 dx + c);
    const int64_t b = c + lanes;
    AddGradientSums<kOutput, kReadX, kColumns>(
        d, Read(d, next.dy + b), XhatOf<kReadX>(d, next.x + b, next_mean, next_rstd, next_offset),
        next_args.At(b), dgain + b, dbias + b, g1, gx1);
    Put<kStream>(d,
                 InputGradient<kOutput, kReadX>(d, row.dy + b, row.x + b, args.At(b), mean, rstd,
                                                offset, mean_g, mean_g_xhat),
                 dx + b);
  }
  for (int64_t i = c; i < whole; i += lanes) {
    Put<kStream>(d,
                 InputGradient<kOutput, kReadX>(d, row.dy + i, row.x + i, args.At(i), mean, rstd,
                                                offset, mean_g, mean_g_xhat),
                 dx + i);
  }
  if (next_cols == 0) return;
  // Vectors alternate between the two sums as in the loop above: a row's sums do not depend on
  // whether another one is finished beside it.
  for (; c + 2 * lanes <= next_whole; c += 2 * lanes) {
    AddGradientSums<kOutput, kReadX, kColumns>(
        d, Read(d, next.dy + c), XhatOf<kReadX>(d, next.x + c, next_mean, next_rstd, next_offset),
        next_args.At(c), dgain + c, dbias + c, g0, gx0);
    const int64_t b = c + lanes;
    AddGradientSums<kOutput, kReadX, kColumns>(
        d, Read(d, next.dy + b), XhatOf<kReadX>(d, next.x + b, next_mean, next_rstd, next_offset),
        next_args.At(b), dgain + b, dbias + b, g1, gx1);
  }
  if (c < next_whole) {
    AddGradientSums<kOutput, kReadX, kColumns>(
        d, Read(d, next.dy + c), XhatOf<kReadX>(d, next.x + c, next_mean, next_rstd, next_offset),
        next_args.At(c), dgain + c, dbias + c, g0, gx0);
  }
  if (next_whole < next_cols) {
    const auto mask = LastLanes(d, next_cols - next_whole);
    const int64_t b = next_cols - lanes;
    const Vec<D> xhat = XhatOf<kReadX>(d, next.x + b, next_mean, next_rstd, next_offset);
    AddGradientSums<kOutput, kReadX, kColumns>(
        d, hn::IfThenElseZero(mask, Read(d, next.dy + b)), hn::IfThenElseZero(mask, xhat),
        next_args.At(b), dgain + b, dbias + b, g1, gx1);
  }
  sums.first += Sum(d, hn::Add(g0, g1));
  if constexpr (kReadX) sums.second += Sum(d, hn::Add(gx0, gx1));
}

/// BackwardRows, for cols >= lanes.
template <Output kOutput, bool kReadX, bool kColumns, bool kDx, bool kStream, class D, class T>
HWY_NOINLINE void BackwardRowsWide(D d, const RowsBackward<T>& args, int64_t begin, int64_t end,
                                   Compute<T>* dgain, Compute<T>* dbias) {
  using C = Compute<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t cols = args.cols;
  const GradientArgs<C> out{args.gain, args.scale, -args.scale * args.slope};
  const bool packed = args.dx_stride == cols;
  // What neither dx nor the columns need is not summed.
  const bool summed = kColumns || args.recipe.via_mean || args.recipe.via_scale;
  RowEnds<kStream, D, T> ends;
  RowMap<C> next_map;
  GradientMap<C> map;
  for (int64_t r = begin - 1; r < end; ++r) {
    const bool has_next = r + 1 < end, has_row = kDx && r >= begin;
    const GradientRow<T> next{args.dy + (r + 1) * args.dy_stride,
                              args.x + (r + 1) * args.x_stride};
    const GradientRow<T> row{args.dy + r * args.dy_stride, args.x + r * args.x_stride};
    T* dx = has_row ? args.dx + r * args.dx_stride : nullptr;
    RowLayout<kStream, D, T> layout(d, dx, cols);
    if (!has_row) layout = RowLayout<kStream, D, T>(d, nullptr, 0);
    if (has_row) {
      const Vec<D> mean = hn::Set(d, map.map.mean), rstd = hn::Set(d, map.map.rstd);
      const Vec<D> offset = hn::Set(d, map.map.offset);
      const Vec<D> mean_g = hn::Set(d, map.mean_g), mean_g_xhat = hn::Set(d, map.mean_g_xhat);
      if (layout.lead > 0) {
        Write(d,
              InputGradient<kOutput, kReadX>(d, row.dy, row.x, out, mean, rstd, offset, mean_g,
                                             mean_g_xhat),
              ends.head);
      }
      if (layout.rest > 0) {
        const int64_t c = cols - lanes;
        Write(d,
              InputGradient<kOutput, kReadX>(d, row.dy + c, row.x + c, out.At(c), mean, rstd,
                                             offset, mean_g, mean_g_xhat),
              ends.tail);
      }
      ends.StoreHead(d, dx, layout);
    }
    if (has_next) next_map = SavedMoments(args, r + 1);
    RowSums sums;
    for (int64_t c = 0; c < cols; c += kChunk) {
      const int64_t width = std::min(kChunk, cols - c), from = layout.lead + c;
      const int64_t vectors =
          std::clamp<int64_t>(layout.vectors - c / lanes, 0, kChunk / lanes);
      BackwardChunk<kOutput, kReadX, kColumns, kStream>(
          d, next.At(c), has_next && summed ? width : 0, next_map, out.At(c), dgain + c, dbias + c,
          sums, row.At(from), map, out.At(from), vectors, dx + from);
    }
    if (has_row) ends.StoreTail(d, dx, cols, layout, has_next && packed);
    if (has_next) map = FinishGradient(args, next_map, sums);
  }
  FinishStores<kStream>();
}

/// SumGradientChunks.
template <Output kOutput, bool kReadX, bool kColumns, class D, class T>
void SumRowGradientChunks(D d, const RowsBackward<T>& args, int64_t row, int64_t begin, int64_t end,
                          double* sums, Compute<T>* dgain, Compute<T>* dbias) {
  using C = Compute<T>;
  const GradientArgs<C> out{args.gain, args.scale, -args.scale * args.slope};
  const GradientRow<T> next{args.dy + row * args.dy_stride, args.x + row * args.x_stride};
  const RowMap<C> map = SavedMoments(args, row);
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t c = chunk * kChunk, width = std::min(kChunk, args.cols - c);
    RowSums part;
    BackwardChunk<kOutput, kReadX, kColumns, false>(d, next.At(c), width, map, out.At(c), dgain + c,
                                                    dbias + c, part, next, GradientMap<C>(), out, 0,
                                                    static_cast<T*>(nullptr));
    sums[2 * chunk] = part.first;
    sums[2 * chunk + 1] = part.second;
  }
}

/// GradientColumns.
template <Output kOutput, bool kReadX, bool kStream, class D, class T>
void RowGradientColumns(D d, const RowsBackward<T>& args, int64_t row, int64_t begin, int64_t end,
                        const double* parts) {
  using C = Compute<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  RowSums sums;
  for (int64_t chunk = 0; chunk * kChunk < args.cols; ++chunk) {
    sums.first += parts[2 * chunk];
    sums.second += parts[2 * chunk + 1];
  }
  const GradientMap<C> map = FinishGradient(args, SavedMoments(args, row), sums);
  const GradientArgs<C> out =
      GradientArgs<C>{args.gain, args.scale, -args.scale * args.slope}.At(begin);
  const GradientRow<T> in =
      GradientRow<T>{args.dy + row * args.dy_stride, args.x + row * args.x_stride}.At(begin);
  T* dx = args.dx + row * args.dx_stride + begin;
  const int64_t cols = end - begin;
  const auto gradient = [&](auto tag, int64_t c) HWY_ATTR {
    return InputGradient<kOutput, kReadX>(
        tag, in.dy + c, in.x + c, out.At(c), hn::Set(tag, map.map.mean),
        hn::Set(tag, map.map.rstd), hn::Set(tag, map.map.offset), hn::Set(tag, map.mean_g),
        hn::Set(tag, map.mean_g_xhat));
  };
  if (cols < 2 * lanes) {
    const OneLane<D> one;
    for (int64_t c = 0; c < cols; ++c) Write(one, gradient(one, c), dx + c);
    return;
  }
  const RowLayout<kStream, D, T> layout(d, dx, cols);
  RowEnds<kStream, D, T> ends;
  if (layout.lead > 0) Write(d, gradient(d, 0), ends.head);
  if (layout.rest > 0) Write(d, gradient(d, cols - lanes), ends.tail);
  ends.StoreHead(d, dx, layout);
  RowSums none;
  BackwardChunk<kOutput, kReadX, false, kStream>(
      d, in, 0, RowMap<C>(), out, nullptr, nullptr, none, in.At(layout.lead), map,
      out.At(layout.lead), layout.vectors, dx + layout.lead);
  ends.StoreTail(d, dx, cols, layout, false);
  FinishStores<kStream>();
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_ROWS_INL_H_
