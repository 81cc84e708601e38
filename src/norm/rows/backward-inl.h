// Backward kernels of every norm over rows, with loops like those of forward-inl.h. Compiled once
// for each target, in namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_ROWS_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_ROWS_BACKWARD_INL_H_
#undef PLANISH_SRC_NORM_ROWS_BACKWARD_INL_H_
#else
#define PLANISH_SRC_NORM_ROWS_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "src/norm/rows/prefetch-inl.h"
#include "src/norm/rows/row_ends-inl.h"
#include "src/norm/rows/rows.h"
#include "src/norm/rows/shared-inl.h"
#include "src/norm/statistics-inl.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

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
  return XhatOfValues<true, D>(Read(d, x), mean, rstd, offset);
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
struct CoefficientVectors {
  Vec<D> mean, rstd, offset;

  HWY_INLINE CoefficientVectors(D d, const RowCoefficients<hn::TFromD<D>>& coefficients)
      : mean(hn::Set(d, coefficients.mean)),
        rstd(hn::Set(d, coefficients.rstd)),
        offset(hn::Set(d, coefficients.offset)) {}
};

template <Output kOutput, bool kReadX, bool kColumns, class D, class T, class C = Compute<T>>
HWY_INLINE void AddGradient(D d, const GradientRow<T> next,
                            const CoefficientVectors<D>& coefficients, const GradientArgs<C>& args,
                            C* dgain, C* dbias, Vec<D>& sum_g, Vec<D>& sum_g_xhat) {
  AddGradientSums<kOutput, kReadX, kColumns>(
      d, Read(d, next.dy),
      XhatOf<kReadX>(d, next.x, coefficients.mean, coefficients.rstd, coefficients.offset),
      GainOf<kOutput>(d, args), args, dgain, dbias, sum_g, sum_g_xhat);
}

/// Returns xhat of two vectors.
template <bool kReadX, class D, class T>
HWY_INLINE VectorPair<D> XhatPairOf(D d, const T* x, Vec<D> mean, Vec<D> rstd, Vec<D> offset) {
  if constexpr (!kReadX) return {hn::Zero(d), hn::Zero(d)};
  const VectorPair<D> v = ReadPair(d, x);
  return {XhatOfValues<true, D>(v.first, mean, rstd, offset),
          XhatOfValues<true, D>(v.second, mean, rstd, offset)};
}

/// Like AddGradient, for two vectors with separate sums. dgain and dbias are in the order of
/// SplitPairs for types that ReadPair splits.
template <Output kOutput, bool kReadX, bool kColumns, bool kSplit, class D, class T,
          class C = Compute<T>>
HWY_INLINE void AddGradientPair(D d, const GradientRow<T> next,
                                const CoefficientVectors<D>& coefficients,
                                const GradientArgs<C>& args, C* dgain, C* dbias, Vec<D>& g0,
                                Vec<D>& gx0, Vec<D>& g1, Vec<D>& gx1) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const VectorPair<D> dy = ReadPair(d, next.dy);
  const VectorPair<D> xhat =
      XhatPairOf<kReadX>(d, next.x, coefficients.mean, coefficients.rstd, coefficients.offset);
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
                                const CoefficientVectors<D>& coefficients,
                                const GradientArgs<C>& args_end, C* dgain_end, C* dbias_end,
                                Vec<D>& sum_g, Vec<D>& sum_g_xhat) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const GradientRow<T> next = next_end.At(-lanes);
  // Null arrays are not offset.
  const int64_t columns = kColumns ? lanes : 0;
  const auto mask = LastLanes(d, rest);
  const Vec<D> xhat =
      XhatOf<kReadX>(d, next.x, coefficients.mean, coefficients.rstd, coefficients.offset);
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
  const RowCoefficients<C>* next_coefficients;
  const GradientCoefficients<C>* coefficients;
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
template <Output kOutput, bool kReadX, bool kColumns, bool kNtStores, bool kSplitSums, bool kSplit,
          class D, class T, class C = Compute<T>>
HWY_NOINLINE LaneSums<C> BackwardChunkLanes(const BackwardWork<T>& work, int64_t vectors,
                                            int64_t more, int64_t rest) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const GradientRow<T> next = work.next, row = work.row;
  const CoefficientVectors<D> next_coefficients(d, *work.next_coefficients),
      coefficients(d, work.coefficients->coefficients);
  const Vec<D> mean_g = hn::Set(d, work.coefficients->mean_g),
               mean_gx = hn::Set(d, work.coefficients->mean_g_xhat);
  const GradientArgs<C> next_args{work.next_gain, work.scale, work.neg_slope};
  const GradientArgs<C> args{work.gain, work.scale, work.neg_slope};
  C* const dgain = work.dgain;
  C* const dbias = work.dbias;
  T* const dx = work.dx;
  Vec<D> g0 = hn::Zero(d), g1 = hn::Zero(d), gx0 = hn::Zero(d), gx1 = hn::Zero(d);
  const auto add = [&](int64_t a, Vec<D>& g, Vec<D>& gx) HWY_ATTR {
    AddGradient<kOutput, kReadX, kColumns>(d, next.At(a), next_coefficients, next_args.At(a),
                                           dgain + a, dbias + a, g, gx);
  };
  const auto put = [&](int64_t a) HWY_ATTR {
    Put<kNtStores>(
        d,
        InputGradient<kOutput, kReadX>(d, row.dy + a, row.x + a, args.At(a), coefficients.mean,
                                       coefficients.rstd, coefficients.offset, mean_g, mean_gx),
        dx + a);
  };
  int64_t c = 0;
  for (const int64_t end = (vectors & ~int64_t{1}) * lanes; c < end; c += 2 * lanes) {
    if constexpr (kNtStores) {
      PrefetchTwo(d, next.dy + c);
      if constexpr (kReadX) PrefetchTwo(d, next.x + c);
    }
    if constexpr (kSplitsPairs<D, T>) {
      AddGradientPair<kOutput, kReadX, kColumns, kSplitSums>(d, next.At(c), next_coefficients,
                                                             next_args.At(c), dgain + c, dbias + c,
                                                             g0, gx0, g1, gx1);
      PutPair<kNtStores>(
          d,
          InputGradientPairBy<kOutput, kReadX>(
              d, row.At(c), GainPairOf<kOutput, T, kSplit>(d, args.At(c)), args, coefficients.mean,
              coefficients.rstd, coefficients.offset, mean_g, mean_gx),
          dx + c);
    } else {  // one after the other, to use fewer registers
      const int64_t b = c + lanes;
      add(c, g0, gx0);
      put(c);
      add(b, g1, gx1);
      put(b);
    }
  }
  if constexpr (kNtStores) {
    PrefetchTwo(d, next.dy + c);
    if constexpr (kReadX) PrefetchTwo(d, next.x + c);
  }
  if (vectors & 1) put(c);
  // Keeps the order of sums independent of the alignment of results.
  const int64_t left = (vectors & 1) + more;
  if (left == 2) {
    AddGradientPair<kOutput, kReadX, kColumns, kSplitSums>(
        d, next.At(c), next_coefficients, next_args.At(c), dgain + c, dbias + c, g0, gx0, g1, gx1);
  } else if (left == 1) {
    add(c, g0, gx0);
  }
  c += left * lanes;
  if (rest > 0) {
    c += rest;
    AddLastGradient<kOutput, kReadX, kColumns>(d, next.At(c), rest, next_coefficients,
                                               next_args.At(c), dgain + c, dbias + c, g1, gx1);
  }
  return AddLanes(d, hn::Add(g0, g1), hn::Add(gx0, gx1));
}

/// Returns the sums of `cols` columns in the order of BackwardChunkLanes, without writing results.
template <Output kOutput, bool kReadX, bool kColumns, class D, class T, class C = Compute<T>>
HWY_NOINLINE LaneSums<C> SumGradientChunkLanes(const GradientRow<T> next, int64_t cols,
                                               const RowCoefficients<C>& next_coefficients,
                                               const GradientArgs<C> args, C* dgain, C* dbias) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const CoefficientVectors<D> coefficients(d, next_coefficients);
  Vec<D> g0 = hn::Zero(d), g1 = hn::Zero(d), gx0 = hn::Zero(d), gx1 = hn::Zero(d);
  int64_t c = 0;
  for (; c + 2 * lanes <= cols; c += 2 * lanes) {
    AddGradientPair<kOutput, kReadX, kColumns, false>(d, next.At(c), coefficients, args.At(c),
                                                      dgain + c, dbias + c, g0, gx0, g1, gx1);
  }
  if (c + lanes <= cols) {
    AddGradient<kOutput, kReadX, kColumns>(d, next.At(c), coefficients, args.At(c), dgain + c,
                                           dbias + c, g0, gx0);
    c += lanes;
  }
  if (c < cols) {
    AddLastGradient<kOutput, kReadX, kColumns>(d, next.At(cols), cols - c, coefficients,
                                               args.At(cols), dgain + cols, dbias + cols, g1, gx1);
  }
  return AddLanes(d, hn::Add(g0, g1), hn::Add(gx0, gx1));
}

/// Pointer to a SumGradientChunkLanes.
template <class T>
using SumGradientLanes = LaneSums<Compute<T>> (*)(GradientRow<T>, int64_t,
                                                  const RowCoefficients<Compute<T>>&,
                                                  GradientArgs<Compute<T>>, Compute<T>* dgain,
                                                  Compute<T>* dbias);

/// Calls `sum_lanes` for parts of a chunk, so that each lane sums few elements. dgain and dbias can
/// be null.
template <class D, class T, class C = Compute<T>>
HWY_INLINE RowSums SumGradientChunk(SumGradientLanes<T> sum_lanes, const GradientRow<T> row,
                                    int64_t cols, const RowCoefficients<C>& coefficients,
                                    const GradientArgs<C>& args, C* dgain, C* dbias) {
  constexpr int64_t kTurn = kTurnVectors<D> * hn::MaxLanes(D());
  const auto run = [&](int64_t c, int64_t n) HWY_ATTR {
    const int64_t columns = dgain ? c : 0;
    return sum_lanes(row.At(c), n, coefficients, args.At(c), dgain + columns, dbias + columns);
  };
  RowSums sums;
  int64_t c = 0;
  for (; cols - c >= kTurn + static_cast<int64_t>(hn::Lanes(D())); c += kTurn) {
    sums.Add(run(c, kTurn));
  }
  sums.Add(run(c, cols - c));
  return sums;
}

template <class D, class T, class C = Compute<T>>
HWY_INLINE RowSums SumGradientRow(SumGradientLanes<T> sum_lanes, const GradientRow<T> row,
                                  int64_t cols, const RowCoefficients<C>& coefficients,
                                  const GradientArgs<C>& args, C* dgain, C* dbias) {
  RowSums sums;
  for (int64_t c = 0; c < cols; c += kChunk) {
    const int64_t columns = dgain ? c : 0;
    sums.Add(SumGradientChunk<D>(sum_lanes, row.At(c), std::min(kChunk, cols - c), coefficients,
                                 args.At(c), dgain + columns, dbias + columns));
  }
  return sums;
}

/// Writes dx of `cols` columns, without sums.
template <Output kOutput, bool kReadX, bool kNtStores, class D, class T, class C = Compute<T>>
HWY_NOINLINE void InputGradientRow(D d, const GradientRow<T> row, int64_t cols,
                                   const GradientCoefficients<C>& coefficients,
                                   const GradientArgs<C> args, T* dx, T* carry, bool carried,
                                   bool follows) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const CoefficientVectors<D> m(d, coefficients.coefficients);
  const Vec<D> mean_g = hn::Set(d, coefficients.mean_g),
               mean_gx = hn::Set(d, coefficients.mean_g_xhat);
  RowEnds<kNtStores, D, T> ends;
  ends.layout = RowLayout<kNtStores, D, T>(d, dx, cols);
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
    Put<kNtStores>(d,
                   InputGradient<kOutput, kReadX>(d, row.dy + c, row.x + c, args.At(c), m.mean,
                                                  m.rstd, m.offset, mean_g, mean_gx),
                   dx + c);
  }
  ends.StoreTail(d, dx, cols, carry, follows);
}

/// Writes one vector of dx.
template <Output kOutput, bool kReadX, class D, class T, class C = Compute<T>>
HWY_NOINLINE void InputGradientVector(const GradientRow<T> row,
                                      const GradientCoefficients<C>& coefficients,
                                      const GradientArgs<C>& args, T* dx) {
  const D d;
  const CoefficientVectors<D> m(d, coefficients.coefficients);
  Write(d,
        InputGradient<kOutput, kReadX>(d, row.dy, row.x, args, m.mean, m.rstd, m.offset,
                                       hn::Set(d, coefficients.mean_g),
                                       hn::Set(d, coefficients.mean_g_xhat)),
        dx);
}

/// Loops for one kind of gradient. Their callers are compiled once for all kinds.
template <bool kNtStores, class D, class T>
struct BackwardLoops {
  using C = Compute<T>;
  using ChunkLanes = LaneSums<C> (*)(const BackwardWork<T>&, int64_t vectors, int64_t more,
                                     int64_t rest);

  bool columns;  // adds to dgain and dbias
  ChunkLanes chunk_lanes;
  // Like chunk_lanes, with the gain in the order of pairs for the sums, or for sums and results.
  // Null for kinds without such a gain.
  ChunkLanes split_sums_lanes, split_lanes;
  SumGradientLanes<T> sum_lanes;
  decltype(&InputGradientRow<Output::kIdentity, true, kNtStores, D, T>) map_row;
  decltype(&InputGradientVector<Output::kIdentity, true, D, T>) map_vector;

  template <Output kOutput, bool kReadX, bool kColumns>
  static constexpr BackwardLoops Of() {
    BackwardLoops loops{
        kColumns,
        &BackwardChunkLanes<kOutput, kReadX, kColumns, kNtStores, false, false, D, T>,
        nullptr,
        nullptr,
        &SumGradientChunkLanes<kOutput, kReadX, kColumns, D, T>,
        &InputGradientRow<kOutput, kReadX, kNtStores, D, T>,
        &InputGradientVector<kOutput, kReadX, D, T>};
    if constexpr (kOutput == Output::kAffine && kSplitsPairs<D, T>) {
      loops.split_sums_lanes =
          &BackwardChunkLanes<kOutput, kReadX, kColumns, kNtStores, true, false, D, T>;
      loops.split_lanes =
          &BackwardChunkLanes<kOutput, kReadX, kColumns, kNtStores, true, true, D, T>;
    }
    return loops;
  }

  /// Calls `lanes` for parts of a chunk, so that each lane sums few elements.
  static HWY_INLINE RowSums Chunk(ChunkLanes lanes, BackwardWork<T>& work, int64_t vectors,
                                  int64_t more, int64_t rest) {
    RowSums sums;
    for (; vectors > kTurnVectors<D>; vectors -= kTurnVectors<D>) {
      sums.Add(lanes(work, kTurnVectors<D>, 0, 0));
      work.Advance(kTurnVectors<D> * static_cast<int64_t>(hn::Lanes(D())));
    }
    sums.Add(lanes(work, vectors, more, rest));
    return sums;
  }
};

/// Keeps dgain and dbias in the order of SplitPairs during its lifetime, if AddGradientPair
/// requires that. They can be null.
template <class D, class T>
class SplitColumns {
  using C = Compute<T>;

 public:
  HWY_INLINE SplitColumns(D d, int64_t cols, C* dgain, C* dbias)
      : cols_(cols), dgain_(dgain), dbias_(dbias) {
    if (!kSplitsPairs<D, T> || dgain == nullptr) return;
    SplitPairs(d, dgain, cols, dgain);
    SplitPairs(d, dbias, cols, dbias);
  }
  HWY_INLINE ~SplitColumns() {
    if (!kSplitsPairs<D, T> || dgain_ == nullptr) return;
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

/// BackwardRows of rows [begin, end) with dx, for cols >= lanes.
template <bool kNtStores, class D, class T>
class WideBackward {
  using C = Compute<T>;
  using Loops = BackwardLoops<kNtStores, D, T>;

 public:
  HWY_INLINE WideBackward(const Loops& loops, const RowsBackward<T>& args, int64_t begin,
                          int64_t end, C* dgain, C* dbias)
      : loops_(loops),
        args_(args),
        begin_(begin),
        end_(end),
        cols_(args.cols),
        block_(GradientRowsPerBlock<kNtStores>(args.cols)),
        reciprocal_(1 / static_cast<double>(args.cols)),
        out_{args.gain, args.scale, -args.scale * args.slope},
        dgain_(dgain),
        dbias_(dbias),
        packed_(args.dx_stride == cols_),
        even_(cols_ % Lanes() == 0 &&
              (!kNtStores || (args.dx_stride % Lanes() == 0 && LayoutOf(args.dx).lead == 0))),
        summing_(loops.columns || args.recipe.via_mean || args.recipe.via_scale),
        split_(loops.split_lanes && cols_ <= kMaxSplitColumns && end - begin >= kMinSplitRows) {
    for (int64_t i = 0; i < block_; ++i) ends_[i].layout.vectors = cols_ / Lanes();
    if constexpr (kSplitsPairs<D, T>) {
      if (split_) SplitPairs(D(), out_.gain, cols_, split_gain_.values);
    }
    work_.scale = out_.scale;
    work_.neg_slope = out_.neg_slope;
  }

  /// Computes the sums of the first block. While two whole blocks remain, computes the results of
  /// one with the sums of the next. Then computes the remaining results.
  HWY_INLINE void Run() {
    int64_t r = begin_, summed = std::min(block_, end_ - begin_);
    for (int64_t i = 0; i < summed; ++i) coefficients_[i] = SumOf(r + i);
    for (; summing_ && r + 2 * block_ <= end_; r += block_) {
      if (!even_) ComputeEnds(r);
      MapAndSum(r);
      if (!even_) StoreEnds(r);
      for (int64_t i = 0; i < block_; ++i) {
        coefficients_[i] =
            FinishGradient(args_, r + block_ + i, next_coefficients_[i], sums_[i], reciprocal_);
      }
      summed = block_;
    }
    for (int64_t i = 0; r < end_; ++i, ++r) {
      if (i >= summed) coefficients_[0] = SumOf(r);
      loops_.map_row(D(), RowAt(r), cols_, coefficients_[i < summed ? i : 0], out_, DxAt(r), carry_,
                     packed_ && r > begin_, packed_ && r + 1 < end_);
    }
    FinishStores<kNtStores>();
  }

 private:
  static HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(D())); }
  HWY_INLINE RowLayout<kNtStores, D, T> LayoutOf(const T* dx) const {
    return RowLayout<kNtStores, D, T>(D(), dx, cols_);
  }
  HWY_INLINE GradientRow<T> RowAt(int64_t r) const {
    return {args_.dy + r * args_.dy_stride, args_.x + r * args_.x_stride};
  }
  HWY_INLINE T* DxAt(int64_t r) const { return args_.dx + r * args_.dx_stride; }

  /// Returns the coefficients of a row, from its sums.
  HWY_INLINE GradientCoefficients<C> SumOf(int64_t r) const {
    const RowCoefficients<C> coefficients = SavedCoefficients(args_, r);
    RowSums row_sums;
    if (summing_) {
      row_sums =
          SumGradientRow<D>(loops_.sum_lanes, RowAt(r), cols_, coefficients, out_, dgain_, dbias_);
    }
    return FinishGradient(args_, r, coefficients, row_sums, reciprocal_);
  }

  /// Computes the partial vectors at the ends of the block's rows.
  HWY_INLINE void ComputeEnds(int64_t r) {
    for (int64_t i = 0; i < block_; ++i) {
      const GradientRow<T> row = RowAt(r + i);
      const int64_t last = cols_ - Lanes();
      ends_[i].layout = LayoutOf(DxAt(r + i));
      if (kNtStores) loops_.map_vector(row, coefficients_[i], out_, ends_[i].head);
      loops_.map_vector(row.At(last), coefficients_[i], out_.At(last), ends_[i].tail);
    }
  }

  /// Computes the results of the block's whole vectors, and the sums of the next block.
  HWY_INLINE void MapAndSum(int64_t r) {
    for (int64_t i = 0; i < block_; ++i) {
      next_coefficients_[i] = SavedCoefficients(args_, r + block_ + i);
      sums_[i] = RowSums();
    }
    for (int64_t c = 0; c < cols_; c += kChunk) {
      const int64_t width = std::min(kChunk, cols_ - c), whole = width / Lanes();
      for (int64_t i = 0; i < block_; ++i) {
        const int64_t from = ends_[i].layout.lead + c;
        const int64_t vectors =
            std::clamp<int64_t>(ends_[i].layout.vectors - c / Lanes(), 0, whole);
        if (!kNtStores && args_.prefetch_output) PrefetchOutput(DxAt(r + i) + c, width);
        work_.next = RowAt(r + block_ + i).At(c);
        work_.row = RowAt(r + i).At(from);
        work_.next_coefficients = &next_coefficients_[i];
        work_.coefficients = &coefficients_[i];
        const int64_t columns = loops_.columns ? c : 0;  // null arrays are not offset
        work_.dgain = dgain_ + columns;
        work_.dbias = dbias_ + columns;
        work_.dx = DxAt(r + i) + from;
        const bool split_row = split_ && ends_[i].layout.lead == 0;
        work_.next_gain = (split_ ? split_gain_.values : out_.gain) + c;
        work_.gain = (split_row ? split_gain_.values : out_.gain) + from;
        const auto lanes = split_row ? loops_.split_lanes
                           : split_  ? loops_.split_sums_lanes
                                     : loops_.chunk_lanes;
        sums_[i].Add(Loops::Chunk(lanes, work_, vectors, whole - vectors, width % Lanes()));
      }
    }
  }

  /// Stores the results of ComputeEnds.
  HWY_INLINE void StoreEnds(int64_t r) {
    const D d;
    for (int64_t i = 0; i < block_; ++i) {
      ends_[i].StoreHead(d, DxAt(r + i), carry_, packed_ && r + i > begin_);
      ends_[i].StoreTail(d, DxAt(r + i), cols_, carry_, packed_);
    }
  }

  const Loops& loops_;
  const RowsBackward<T>& args_;
  const int64_t begin_, end_, cols_, block_;
  const double reciprocal_;
  const GradientArgs<C> out_;
  C *const dgain_, *const dbias_;
  const bool packed_;   // rows of dx are contiguous
  const bool even_;     // rows of whole vectors at aligned addresses have no partial vectors
  const bool summing_;  // dx, or dgain and dbias, need the sums
  const bool split_;    // the gain is in the order of pairs, in split_gain_
  RowEnds<kNtStores, D, T> ends_[kMaxRows];
  HWY_ALIGN T carry_[2 * hn::MaxLanes(D())] = {};
  GradientCoefficients<C> coefficients_[kMaxRows];  // for the rows of the block
  // Sums and coefficients for the next block.
  RowSums sums_[kMaxRows];
  RowCoefficients<C> next_coefficients_[kMaxRows];
  BackwardWork<T> work_;
  SplitParameters<D, T> split_gain_;
};

/// Computes BackwardRows for cols >= lanes, with dx.
template <bool kNtStores, class D, class T>
HWY_NOINLINE void BackwardRowsWide(const BackwardLoops<kNtStores, D, T>& loops,
                                   const RowsBackward<T>& args, int64_t begin, int64_t end,
                                   Compute<T>* dgain, Compute<T>* dbias) {
  const SplitColumns<D, T> split_columns(D(), args.cols, dgain, dbias);
  WideBackward<kNtStores, D, T>(loops, args, begin, end, dgain, dbias).Run();
}

/// Computes BackwardRows for cols >= lanes, without dx.
template <Output kOutput, class D, class T>
void GradientColumnsWide(D d, const RowsBackward<T>& args, int64_t begin, int64_t end,
                         Compute<T>* dgain, Compute<T>* dbias) {
  const SplitColumns<D, T> split_columns(d, args.cols, dgain, dbias);
  const GradientArgs<Compute<T>> out{args.gain, args.scale, -args.scale * args.slope};
  for (int64_t r = begin; r < end; ++r) {
    SumGradientRow<D>(&SumGradientChunkLanes<kOutput, true, true, D, T>,
                      GradientRow<T>{args.dy + r * args.dy_stride, args.x + r * args.x_stride},
                      args.cols, SavedCoefficients(args, r), out, dgain, dbias);
  }
}

/// Implements SumGradientChunks.
template <Output kOutput, bool kReadX, class D, class T>
void SumRowGradientChunks(D, const RowsBackward<T>& args, int64_t row, int64_t begin, int64_t end,
                          double* sums) {
  using C = Compute<T>;
  const GradientArgs<C> out{args.gain, args.scale, -args.scale * args.slope};
  const GradientRow<T> next{args.dy + row * args.dy_stride, args.x + row * args.x_stride};
  const RowCoefficients<C> coefficients = SavedCoefficients(args, row);
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    const int64_t c = chunk * kChunk, width = std::min(kChunk, args.cols - c);
    RowSums part;
    part.Add(SumGradientChunk<D>(&SumGradientChunkLanes<kOutput, kReadX, false, D, T>, next.At(c),
                                 width, coefficients, out.At(c), static_cast<C*>(nullptr),
                                 static_cast<C*>(nullptr)));
    sums[2 * chunk] = part.first;
    sums[2 * chunk + 1] = part.second;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_ROWS_BACKWARD_INL_H_
