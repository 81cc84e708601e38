// Forward kernels of every norm over rows. One loop over columns writes the results of one row
// while it sums a later one, so memory is read once. Rows are processed in blocks, and long rows in
// chunks of columns over the block. So gain and bias are loaded once a block, and the latency from
// a row's sums to its results occurs once a block. Compiled once for each target, in namespace
// HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_ROWS_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_ROWS_FORWARD_INL_H_
#undef PLANISH_SRC_NORM_ROWS_FORWARD_INL_H_
#else
#define PLANISH_SRC_NORM_ROWS_FORWARD_INL_H_
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
struct OutputArgs {
  const C* gain;
  const C* bias;
  C scale;      // for Output::kAdaptive
  C neg_slope;  // -scale * slope

  HWY_INLINE OutputArgs At(int64_t c) const { return {gain + c, bias + c, scale, neg_slope}; }
};

template <class D>
HWY_INLINE Vec<D> Adapted(D d, Vec<D> xhat, const OutputArgs<hn::TFromD<D>>& out) {
  return hn::Mul(hn::MulAdd(xhat, hn::Set(d, out.neg_slope), hn::Set(d, out.scale)), xhat);
}

template <Output kOutput, bool kCentre, class D, class T>
HWY_INLINE Vec<D> Normalize(D d, const T* x, const OutputArgs<hn::TFromD<D>>& out, Vec<D> mean,
                            Vec<D> rstd, Vec<D> offset) {
  const Vec<D> xhat = XhatOfValues<kCentre, D>(Read(d, x), mean, rstd, offset);
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
HWY_INLINE VectorPair<D> NormalizePairBy(D d, const T* x, const VectorPair<D>& gain,
                                         const VectorPair<D>& bias,
                                         const OutputArgs<hn::TFromD<D>>& out, Vec<D> mean,
                                         Vec<D> rstd, Vec<D> offset) {
  VectorPair<D> v = ReadPair(d, x);
  v.first = XhatOfValues<kCentre, D>(v.first, mean, rstd, offset);
  v.second = XhatOfValues<kCentre, D>(v.second, mean, rstd, offset);
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
HWY_INLINE VectorPair<D> NormalizePair(D d, const T* x, const OutputArgs<hn::TFromD<D>>& out,
                                       Vec<D> mean, Vec<D> rstd, Vec<D> offset) {
  VectorPair<D> gain{mean, mean}, bias = gain;
  if constexpr (kOutput == Output::kAffine) {
    gain = ReadParameterPair<T, kSplit>(d, out.gain);
    bias = ReadParameterPair<T, kSplit>(d, out.bias);
  }
  return NormalizePairBy<kOutput, kCentre>(d, x, gain, bias, out, mean, rstd, offset);
}

template <bool kCentre, class D>
HWY_INLINE void AddValues(Vec<D> v, Vec<D> shift, Vec<D>& first, Vec<D>& second) {
  if constexpr (kCentre) {
    v = hn::Sub(v, shift);
    first = hn::Add(first, v);
  }
  second = hn::MulAdd(v, v, second);
}

template <bool kCentre, class D, class T>
HWY_INLINE void AddSums(D d, const T* x, Vec<D> shift, Vec<D>& first, Vec<D>& second) {
  AddValues<kCentre, D>(Read(d, x), shift, first, second);
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
    AddValues<kCentre, D>(v.first, shift, first0, second0);
    AddValues<kCentre, D>(v.second, shift, first1, second1);
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

/// Returns an estimate of a row's mean, for at least as many columns as lanes: the mean of two
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
template <Output kOutput, bool kCentre, bool kNtStores, bool kSplit, class D, class T,
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
    Put<kNtStores>(d, Normalize<kOutput, kCentre>(d, x + a, out.At(a), mean, rstd, offset), y + a);
  };
  int64_t c = 0;
  for (const int64_t end = (vectors & ~int64_t{1}) * lanes; c < end; c += 2 * lanes) {
    if constexpr (kNtStores) PrefetchTwo(d, next + c);
    if constexpr (kSplitsPairs<D, T>) {
      sums.template AddPair<kCentre>(d, next + c, shift);
      PutPair<kNtStores>(
          d, NormalizePair<kOutput, kCentre, kSplit>(d, x + c, out.At(c), mean, rstd, offset),
          y + c);
    } else {  // one after the other, to use fewer registers
      const int64_t b = c + lanes;
      AddSums<kCentre>(d, next + c, shift, sums.first0, sums.second0);
      put(c);
      AddSums<kCentre>(d, next + b, shift, sums.first1, sums.second1);
      put(b);
    }
  }
  // Without this, a quarter of each row of few vectors would not be prefetched.
  if constexpr (kNtStores) PrefetchTwo(d, next + c);
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

/// Calls `sum_lanes` for parts of a chunk, so that each lane sums few elements.
template <class D, class T, class C = Compute<T>>
HWY_INLINE RowSums SumChunk(LaneSums<C> (*sum_lanes)(const T*, int64_t, C), const T* next,
                            int64_t cols, C shift) {
  constexpr int64_t kTurn = kTurnVectors<D> * hn::MaxLanes(D());
  RowSums sums;
  int64_t c = 0;
  for (; cols - c >= kTurn + static_cast<int64_t>(hn::Lanes(D())); c += kTurn) {
    sums.Add(sum_lanes(next + c, kTurn, shift));
  }
  sums.Add(sum_lanes(next + c, cols - c, shift));
  return sums;
}

/// Writes the results of `cols` columns, without sums.
template <Output kOutput, bool kCentre, bool kNtStores, class D, class T>
HWY_NOINLINE void MapRow(D d, const T* x, int64_t cols,
                         const RowCoefficients<Compute<T>> coefficients,
                         const OutputArgs<Compute<T>> out, T* y, T* carry, bool carried,
                         bool follows) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec<D> mean = hn::Set(d, coefficients.mean), rstd = hn::Set(d, coefficients.rstd);
  const Vec<D> offset = hn::Set(d, coefficients.offset);
  RowEnds<kNtStores, D, T> ends;
  ends.layout = RowLayout<kNtStores, D, T>(d, y, cols);
  const int64_t last = cols - lanes, end = ends.layout.lead + ends.layout.vectors * lanes;
  if (ends.layout.lead > 0) {
    Write(d, Normalize<kOutput, kCentre>(d, x, out, mean, rstd, offset), ends.head);
  }
  if (ends.layout.rest > 0) {
    Write(d, Normalize<kOutput, kCentre>(d, x + last, out.At(last), mean, rstd, offset), ends.tail);
  }
  ends.StoreHead(d, y, carry, carried);
  int64_t c = ends.layout.lead;
  for (; c + 2 * lanes <= end; c += 2 * lanes) {
    PutPair<kNtStores>(
        d, NormalizePair<kOutput, kCentre, false>(d, x + c, out.At(c), mean, rstd, offset), y + c);
  }
  if (c < end) {
    Put<kNtStores>(d, Normalize<kOutput, kCentre>(d, x + c, out.At(c), mean, rstd, offset), y + c);
  }
  ends.StoreTail(d, y, cols, carry, follows);
}

/// Returns the vector of results with the end of one row and the start of the next. The rows of x
/// and of y are contiguous. In `ends`, gain and bias contain the last parameters, then the first.
template <Output kOutput, bool kCentre, class D, class T, class C = Compute<T>>
HWY_INLINE Vec<D> NormalizeAcross(D d, const T* next, const RowCoefficients<C>& coefficients,
                                  const RowCoefficients<C>& next_coefficients,
                                  const OutputArgs<C>& ends, int64_t lead) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto of_next = hn::Not(hn::FirstN(d, static_cast<size_t>(lanes - lead)));
  const auto of_both = [&](C v, C next_v) HWY_ATTR {
    return hn::IfThenElse(of_next, hn::Set(d, next_v), hn::Set(d, v));
  };
  return Normalize<kOutput, kCentre>(d, next + lead - lanes, ends.At(lead),
                                     of_both(coefficients.mean, next_coefficients.mean),
                                     of_both(coefficients.rstd, next_coefficients.rstd),
                                     of_both(coefficients.offset, next_coefficients.offset));
}

/// Writes one vector of results.
template <Output kOutput, bool kCentre, class D, class T, class C = Compute<T>>
HWY_NOINLINE void MapVector(const T* x, const OutputArgs<C>& out,
                            const RowCoefficients<C>& coefficients, T* y) {
  const D d;
  Write(d,
        Normalize<kOutput, kCentre>(d, x, out, hn::Set(d, coefficients.mean),
                                    hn::Set(d, coefficients.rstd), hn::Set(d, coefficients.offset)),
        y);
}

/// Stores the vector of NormalizeAcross, whose last `lead` elements start the next row, at `y`.
template <Output kOutput, bool kCentre, bool kNtStores, class D, class T, class C = Compute<T>>
HWY_NOINLINE void MapAcross(const T* next, const RowCoefficients<C>& coefficients,
                            const RowCoefficients<C>& next_coefficients, const OutputArgs<C>& ends,
                            int64_t lead, T* y) {
  const D d;
  Put<kNtStores>(
      d, NormalizeAcross<kOutput, kCentre>(d, next, coefficients, next_coefficients, ends, lead),
      y);
}

/// Loops for one kind of output. Their callers are compiled once for all kinds.
template <bool kNtStores, class D, class T>
struct ForwardLoops {
  using C = Compute<T>;
  using ChunkLanes = decltype(&ForwardChunkLanes<Output::kIdentity, true, kNtStores, false, D, T>);

  bool centre;
  bool affine;
  ChunkLanes chunk_lanes;
  ChunkLanes split_chunk_lanes;  // for parameters in the order of pairs, or null
  decltype(&SumChunkLanes<true, D, T>) sum_lanes;
  decltype(&MapRow<Output::kIdentity, true, kNtStores, D, T>) map_row;
  decltype(&MapVector<Output::kIdentity, true, D, T>) map_vector;
  decltype(&MapAcross<Output::kIdentity, true, kNtStores, D, T>) map_across;

  template <Output kOutput, bool kCentre>
  static constexpr ForwardLoops Of() {
    constexpr bool kAffine = kOutput == Output::kAffine;
    ForwardLoops loops{kCentre,
                       kAffine,
                       &ForwardChunkLanes<kOutput, kCentre, kNtStores, false, D, T>,
                       nullptr,
                       &SumChunkLanes<kCentre, D, T>,
                       &MapRow<kOutput, kCentre, kNtStores, D, T>,
                       &MapVector<kOutput, kCentre, D, T>,
                       &MapAcross<kOutput, kCentre, kNtStores, D, T>};
    if constexpr (kAffine && kSplitsPairs<D, T>) {
      loops.split_chunk_lanes = &ForwardChunkLanes<kOutput, kCentre, kNtStores, true, D, T>;
    }
    return loops;
  }

  HWY_INLINE C ShiftOf(const T* x, int64_t cols) const {
    return centre ? HWY_NAMESPACE::ShiftOf<true>(D(), x, cols) : C{0};
  }

  HWY_INLINE RowSums SumRow(const T* x, int64_t cols, C shift) const {
    RowSums sums;
    for (int64_t c = 0; c < cols; c += kChunk) {
      sums.Add(SumChunk<D>(sum_lanes, x + c, std::min(kChunk, cols - c), shift));
    }
    return sums;
  }

  /// Calls `lanes` for parts of a chunk, so that each lane sums few elements.
  static HWY_INLINE RowSums Chunk(ChunkLanes lanes, const T* next, const T* x, T* y,
                                  const OutputArgs<C> out, int64_t vectors, C shift,
                                  const RowCoefficients<C>& coefficients, int64_t more,
                                  int64_t rest) {
    const auto run = [&](int64_t c, int64_t v, int64_t m, int64_t columns) HWY_ATTR {
      return lanes(next + c, x + c, y + c, out.gain + c, out.bias + c, v, shift, coefficients.mean,
                   coefficients.rstd, coefficients.offset, out.scale, out.neg_slope, m, columns);
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
};

/// Calls args.revise, if set, for rows [r, r + n) and reloads their coefficients.
template <class T>
HWY_INLINE void Revise(const RowsForward<T>& args, int64_t r, int64_t n,
                       RowCoefficients<Compute<T>>* coefficients) {
  if (args.revise == nullptr || n == 0) [[likely]]
    return;
  (*args.revise)(r, r + n);
  for (int64_t i = 0; i < n; ++i) coefficients[i] = SavedCoefficients(args, r + i);
}

/// ForwardRows of rows [begin, end), for cols >= lanes.
template <bool kNtStores, class D, class T>
class WideForward {
  using C = Compute<T>;
  using Loops = ForwardLoops<kNtStores, D, T>;

 public:
  HWY_INLINE WideForward(const Loops& loops, const RowsForward<T>& args, int64_t begin, int64_t end)
      : loops_(loops),
        args_(args),
        begin_(begin),
        end_(end),
        cols_(args.cols),
        x_stride_(args.x_stride),
        y_stride_(args.y_stride),
        block_(RowsPerBlock<kNtStores, T>(args.cols)),
        reciprocal_(1 / static_cast<double>(args.cols)),
        out_{args.gain, args.bias, args.scale, -args.scale * args.slope},
        packed_(y_stride_ == cols_),
        joined_(kNtStores && packed_ && x_stride_ == cols_),
        even_(cols_ % Lanes() == 0 &&
              (!kNtStores || (y_stride_ % Lanes() == 0 && LayoutOf(args.y).lead == 0))),
        split_(loops.split_chunk_lanes && cols_ <= kMaxSplitColumns &&
               end - begin >= kMinSplitRows) {
    [[maybe_unused]] const D d;
    for (int64_t i = 0; i < block_; ++i) ends_[i].layout.vectors = cols_ / Lanes();
    if (joined_ && loops.affine) {
      std::copy_n(out_.gain + cols_ - Lanes(), Lanes(), end_gain_);
      std::copy_n(out_.gain, Lanes(), end_gain_ + Lanes());
      std::copy_n(out_.bias + cols_ - Lanes(), Lanes(), end_bias_);
      std::copy_n(out_.bias, Lanes(), end_bias_ + Lanes());
    }
    if constexpr (kSplitsPairs<D, T>) {
      if (split_) {
        SplitPairs(d, out_.gain, cols_, split_gain_.values);
        SplitPairs(d, out_.bias, cols_, split_bias_.values);
      }
    }
  }

  /// Computes the sums of the first block. While two whole blocks remain, computes the results of
  /// one with the sums of the next. Then computes the remaining results.
  HWY_INLINE void Run() {
    int64_t r = begin_, summed = std::min(block_, end_ - begin_);
    for (int64_t i = 0; i < summed; ++i) coefficients_[i] = SumOf(r + i);
    Revise(args_, r, summed, coefficients_);
    for (; r + 2 * block_ <= end_; r += block_) {
      if (!even_) ComputeEnds(r);
      MapAndSum(r);
      if (!even_) StoreEnds(r);
      last_coefficients_ = coefficients_[block_ - 1];
      for (int64_t i = 0; i < block_; ++i) {
        coefficients_[i] = FinishStatistics(args_, r + block_ + i, static_cast<double>(shifts_[i]),
                                            sums_[i], reciprocal_);
      }
      Revise(args_, r + block_, block_, coefficients_);
      summed = block_;
    }
    if (joined_ && !even_ && r > begin_) StoreLastEnd(r);
    MapRest(r, summed);
    FinishStores<kNtStores>();
  }

 private:
  static HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(D())); }
  HWY_INLINE RowLayout<kNtStores, D, T> LayoutOf(const T* y) const {
    return RowLayout<kNtStores, D, T>(D(), y, cols_);
  }

  /// Returns the coefficients of a row, from its sums.
  HWY_INLINE RowCoefficients<C> SumOf(int64_t r) const {
    const T* x = args_.x + r * x_stride_;
    const C shift = loops_.ShiftOf(x, cols_);
    return FinishStatistics(args_, r, static_cast<double>(shift), loops_.SumRow(x, cols_, shift),
                            reciprocal_);
  }

  /// Computes the partial vectors at the ends of the block's rows. If rows are contiguous, stores
  /// the vector with the end of one row and the start of the next.
  HWY_INLINE void ComputeEnds(int64_t r) {
    const OutputArgs<C> row_ends_args{end_gain_, end_bias_, out_.scale, out_.neg_slope};
    for (int64_t i = 0; i < block_; ++i) {
      const RowCoefficients<C>& coefficients = coefficients_[i];
      const T* row = args_.x + (r + i) * x_stride_;
      T* const to = args_.y + (r + i) * y_stride_;
      ends_[i].layout = LayoutOf(to);
      if (joined_ && r + i > begin_) {
        const int64_t lead = ends_[i].layout.lead;
        if (lead == 0) continue;
        loops_.map_across(row, i > 0 ? coefficients_[i - 1] : last_coefficients_, coefficients,
                          row_ends_args, lead, to + lead - Lanes());
        continue;
      }
      const int64_t last = cols_ - Lanes();
      if (kNtStores) loops_.map_vector(row, out_, coefficients, ends_[i].head);
      loops_.map_vector(row + last, out_.At(last), coefficients, ends_[i].tail);
    }
  }

  /// Computes the results of the block's whole vectors, and the sums of the next block.
  HWY_INLINE void MapAndSum(int64_t r) {
    const T* x = args_.x + r * x_stride_;
    const T* next = x + block_ * x_stride_;
    T* y = args_.y + r * y_stride_;
    for (int64_t i = 0; i < block_; ++i) {
      shifts_[i] = loops_.ShiftOf(next + i * x_stride_, cols_);
      sums_[i] = RowSums();
    }
    const OutputArgs<C> split_out{split_gain_.values, split_bias_.values, C{0}, C{0}};
    for (int64_t c = 0; c < cols_; c += kChunk) {
      const int64_t width = std::min(kChunk, cols_ - c), whole = width / Lanes();
      for (int64_t i = 0; i < block_; ++i) {
        if (!kNtStores && args_.prefetch_output) PrefetchOutput(y + i * y_stride_ + c, width);
        const int64_t from = ends_[i].layout.lead + c;
        const int64_t vectors =
            std::clamp<int64_t>(ends_[i].layout.vectors - c / Lanes(), 0, whole);
        const bool split = split_ && ends_[i].layout.lead == 0;
        sums_[i].Add(Loops::Chunk(
            split ? loops_.split_chunk_lanes : loops_.chunk_lanes, next + i * x_stride_ + c,
            x + i * x_stride_ + from, y + i * y_stride_ + from, (split ? split_out : out_).At(from),
            vectors, shifts_[i], coefficients_[i], whole - vectors, width % Lanes()));
      }
    }
  }

  /// Stores the results of ComputeEnds.
  HWY_INLINE void StoreEnds(int64_t r) {
    const D d;
    T* y = args_.y + r * y_stride_;
    for (int64_t i = 0; i < block_; ++i) {
      if (joined_) {
        if (r + i == begin_) ends_[i].StoreHead(d, y, carry_, false);
        continue;
      }
      ends_[i].StoreHead(d, y + i * y_stride_, carry_, packed_ && r + i > begin_);
      ends_[i].StoreTail(d, y + i * y_stride_, cols_, carry_, packed_);
    }
  }

  /// Keeps the end of row r - 1, which is stored together with the start of row r.
  HWY_INLINE void StoreLastEnd(int64_t r) {
    const D d;
    ends_[0].layout = LayoutOf(args_.y + (r - 1) * y_stride_);
    const int64_t last = r * cols_ - Lanes();
    loops_.map_vector(args_.x + last, out_.At(cols_ - Lanes()), last_coefficients_, ends_[0].tail);
    ends_[0].StoreTail(d, args_.y + (r - 1) * y_stride_, cols_, carry_, true);
  }

  /// Computes the rows from r on. The coefficients of the first `summed` rows are known.
  HWY_INLINE void MapRest(int64_t r, int64_t summed) {
    for (int64_t i = 0; r < end_; ++i, ++r) {
      if (i >= summed) {
        coefficients_[0] = SumOf(r);
        Revise(args_, r, 1, coefficients_);
      }
      loops_.map_row(D(), args_.x + r * x_stride_, cols_, coefficients_[i < summed ? i : 0], out_,
                     args_.y + r * y_stride_, carry_, packed_ && r > begin_,
                     packed_ && r + 1 < end_);
    }
  }

  const Loops& loops_;
  const RowsForward<T>& args_;
  const int64_t begin_, end_, cols_, x_stride_, y_stride_, block_;
  const double reciprocal_;
  const OutputArgs<C> out_;
  const bool packed_;  // rows of y are contiguous
  const bool joined_;  // also rows of x, and one vector contains the end of a row and the start of
                       // the next
  const bool even_;    // rows of whole vectors at aligned addresses have no partial vectors
  const bool split_;   // parameters are in the order of pairs, in split_gain_ and split_bias_
  RowEnds<kNtStores, D, T> ends_[kMaxRows];
  HWY_ALIGN T carry_[2 * hn::MaxLanes(D())] = {};
  // Coefficients for the rows of the block, and for the last row of the block before.
  RowCoefficients<C> coefficients_[kMaxRows], last_coefficients_;
  // Sums and shifts of the rows of the next block.
  RowSums sums_[kMaxRows];
  C shifts_[kMaxRows] = {};
  // If joined: the last parameters, then the first.
  HWY_ALIGN C end_gain_[2 * hn::MaxLanes(D())] = {}, end_bias_[2 * hn::MaxLanes(D())] = {};
  SplitParameters<D, T> split_gain_, split_bias_;
};

/// Computes ForwardRows for cols >= lanes.
template <bool kNtStores, class D, class T>
HWY_NOINLINE void ForwardRowsWide(const ForwardLoops<kNtStores, D, T>& loops,
                                  const RowsForward<T>& args, int64_t begin, int64_t end) {
  WideForward<kNtStores, D, T>(loops, args, begin, end).Run();
}

/// Computes MapAndSumRows for cols >= lanes.
template <bool kNtStores, class D, class T>
HWY_NOINLINE void MapAndSumRowsWide(const ForwardLoops<kNtStores, D, T>& loops,
                                    const RowsForward<T>& current, const RowsForward<T>& next) {
  using C = Compute<T>;
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t cols = current.cols;
  const double reciprocal = 1 / static_cast<double>(cols);
  const OutputArgs<C> out{current.gain, current.bias, current.scale,
                          -current.scale * current.slope};
  const bool packed = current.y_stride == cols;
  // Rows of whole vectors at aligned addresses are mapped while the others are summed.
  const bool even = cols % lanes == 0 &&
                    (!kNtStores || (current.y_stride % lanes == 0 &&
                                    RowLayout<kNtStores, D, T>(d, current.y, cols).lead == 0));
  HWY_ALIGN T carry[2 * hn::MaxLanes(D())] = {};
  const int64_t block = RowsPerBlock<kNtStores, T>(cols);
  int64_t r = 0;
  for (; even && r + block <= std::min(current.rows, next.rows); r += block) {
    const T* x = current.x + r * current.x_stride;
    T* y = current.y + r * current.y_stride;
    const T* summed = next.x + r * next.x_stride;
    RowCoefficients<C> row_coefficients[kMaxRows];
    RowSums row_sums[kMaxRows];
    C shifts[kMaxRows] = {};
    for (int64_t i = 0; i < block; ++i) {
      row_coefficients[i] = SavedCoefficients(current, r + i);
      shifts[i] = loops.ShiftOf(summed + i * next.x_stride, cols);
    }
    for (int64_t c = 0; c < cols; c += kChunk) {
      const int64_t vectors = std::min(kChunk, cols - c) / lanes;
      for (int64_t i = 0; i < block; ++i) {
        row_sums[i].Add(loops.Chunk(loops.chunk_lanes, summed + i * next.x_stride + c,
                                    x + i * current.x_stride + c, y + i * current.y_stride + c,
                                    out.At(c), vectors, shifts[i], row_coefficients[i], 0, 0));
      }
    }
    for (int64_t i = 0; i < block; ++i) {
      FinishStatistics(next, r + i, static_cast<double>(shifts[i]), row_sums[i], reciprocal);
    }
  }
  const int64_t mapped = r;
  for (; r < std::max(current.rows, next.rows); ++r) {
    const T* x = current.x + r * current.x_stride;
    const T* summed = next.x + r * next.x_stride;
    if (r < current.rows) {
      loops.map_row(d, x, cols, SavedCoefficients(current, r), out,
                    current.y + r * current.y_stride, carry, packed && r > mapped,
                    packed && r + 1 < current.rows);
    }
    if (r < next.rows) {
      const C shift = loops.ShiftOf(summed, cols);
      FinishStatistics(next, r, static_cast<double>(shift), loops.SumRow(summed, cols, shift),
                       reciprocal);
    }
  }
  FinishStores<kNtStores>();
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
      part.Add(
          SumChunk<D>(&SumChunkLanes<true, D, T>, x + c, width, ShiftOf<true>(d, x, args.cols)));
    } else {
      part.Add(SumChunk<D>(&SumChunkLanes<false, D, T>, x + c, width, Compute<T>{0}));
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
  FinishStatistics(args, row, static_cast<double>(shift), sums, 1 / static_cast<double>(args.cols));
}

/// Implements MapColumns.
template <Output kOutput, bool kCentre, bool kNtStores, class D, class T>
void MapRowColumns(D d, const RowsForward<T>& args, int64_t row, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* x = args.x + row * args.x_stride + begin;
  T* y = args.y + row * args.y_stride + begin;
  const int64_t cols = end - begin;
  const OutputArgs<C> out =
      OutputArgs<C>{args.gain, args.bias, args.scale, -args.scale * args.slope}.At(begin);
  const RowCoefficients<C> coefficients = SavedCoefficients(args, row);
  // Fewer columns than a vector are processed one at a time. A whole vector would read columns
  // before `begin`, which another thread can already have overwritten in place.
  if (cols < lanes) {
    const OneLane<D> one;
    for (int64_t c = 0; c < cols; ++c) {
      Write(one,
            Normalize<kOutput, kCentre>(one, x + c, out.At(c), hn::Set(one, coefficients.mean),
                                        hn::Set(one, coefficients.rstd),
                                        hn::Set(one, coefficients.offset)),
            y + c);
    }
    return;
  }
  MapRow<kOutput, kCentre, kNtStores>(d, x, cols, coefficients, out, y, static_cast<T*>(nullptr),
                                      false, false);
  FinishStores<kNtStores>();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_ROWS_FORWARD_INL_H_
