// Rows too narrow for the loops of forward-inl.h and backward-inl.h, and too wide for those of
// transposed-inl.h. Processes eight rows at a time and finishes their sums together in vectors,
// because the work per row dominates. For arithmetic in float, on targets with vectors of at least
// eight floats. Compiled once for each target, in namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_ROWS_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_ROWS_NARROW_INL_H_
#undef PLANISH_SRC_NORM_ROWS_NARROW_INL_H_
#else
#define PLANISH_SRC_NORM_ROWS_NARROW_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "src/norm/rows/backward-inl.h"
#include "src/norm/rows/forward-inl.h"
#include "src/norm/rows/prefetch-inl.h"
#include "src/norm/rows/row_ends-inl.h"
#include "src/norm/rows/shared-inl.h"
#include "src/norm/rows/staged-inl.h"
#include "src/norm/statistics-inl.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

#if HWY_MAX_BYTES >= 32 && HWY_TARGET != HWY_SCALAR

// --- Tuning constants (docs/tuning.md) ---

/// Column counts below which rows are processed in groups of eight: with ordinary stores, and with
/// non-temporal stores or prefetched outputs. With the latter only narrow rows gain, those of
/// 16-bit elements up to a greater width. Results have the same bits either way.
inline constexpr int64_t kNarrowColumns = 640;
inline constexpr int64_t kNarrowNtColumns = 80, kNarrowNt16BitColumns = 256;

/// Rows whose results are computed side by side. They share the loads of gain and bias; more would
/// exceed the registers.
inline constexpr int64_t kRowsSideBySide = hn::MaxLanes(hn::ScalableTag<float>()) >= 16 ? 4 : 2;

/// Limits for backward with ordinary stores: with Tuning::l1_holds_four_rows, and without. Rows
/// side by side share the loads and stores of dgain and dbias.
inline constexpr int64_t kNarrowGradientColumns = kRowsSideBySide == 4 ? kChunk + 1 : 400;
inline constexpr int64_t kNarrowSmallL1GradientColumns = 160;

/// Limits for backward with non-temporal stores or prefetched outputs: of 16-bit elements (others:
/// kNarrowNtColumns), and of all with a slow L3 cache.
inline constexpr int64_t kNarrowNt16BitGradientColumns = 128;
inline constexpr int64_t kNarrowSlowL3GradientColumns = 48;

/// Rows of a group.
inline constexpr int64_t kGroup = 8;

/// Rows from which the fixed cost of a group pays.
inline constexpr int64_t kMinNarrowRows = 3;

// --- End of tuning constants ---

/// Returns the limit for forward with elements of type T.
template <class T>
HWY_INLINE int64_t NarrowColumns(bool nt_stores_or_prefetch) {
  if (!nt_stores_or_prefetch) return kNarrowColumns;
  return sizeof(T) == 2 && !CurrentTuning().slow_l3 ? kNarrowNt16BitColumns : kNarrowNtColumns;
}

/// Returns the limit for backward with elements of type T.
template <class T>
HWY_INLINE int64_t NarrowGradientColumns(bool nt_stores_or_prefetch) {
  const Tuning& tuning = CurrentTuning();
  if (nt_stores_or_prefetch) {
    if (tuning.slow_l3) return kNarrowSlowL3GradientColumns;
    return sizeof(T) == 2 ? kNarrowNt16BitGradientColumns : kNarrowNtColumns;
  }
  return tuning.l1_holds_four_rows ? kNarrowGradientColumns : kNarrowSmallL1GradientColumns;
}

/// Coefficients of xhat of eight rows.
struct EightCoefficients {
  HWY_ALIGN float mean[8];
  HWY_ALIGN float rstd[8];
  HWY_ALIGN float offset[8];

  HWY_INLINE void Set(int64_t i, const RowCoefficients<float>& row_coefficients) {
    mean[i] = row_coefficients.mean;
    rstd[i] = row_coefficients.rstd;
    offset[i] = row_coefficients.offset;
  }
};

/// Loads the saved statistics of rows [r, r + n); other rows get zeros.
template <class Args>
HWY_INLINE void LoadEight(const Args& args, int64_t r, int64_t n, EightCoefficients& coefficients) {
  const Eight d;
  // As in CoefficientsOf.
  const Vec<Eight> rstd = PlainNan(d, LoadRows(d, args.rstd, r, n));
  hn::Store(LoadRows(d, args.mean, r, n), d, coefficients.mean);
  hn::Store(rstd, d, coefficients.rstd);
  hn::Store(hn::Neg(hn::Mul(LoadRows(d, args.mean_lo, r, n), rstd)), d, coefficients.offset);
}

/// Saves the statistics of rows [r, r + n).
template <class T>
HWY_INLINE void SaveEight(const RowsForward<T>& args, int64_t r, int64_t n, Vec<Eight> mean,
                          Vec<Eight> mean_lo, Vec<Eight> rstd, EightCoefficients& coefficients) {
  const Eight d;
  hn::Store(mean, d, coefficients.mean);
  hn::Store(rstd, d, coefficients.rstd);
  hn::Store(hn::Neg(hn::Mul(mean_lo, rstd)), d, coefficients.offset);
  SaveRows(d, mean, args.mean, r, n);
  SaveRows(d, mean_lo, args.mean_lo, r, n);
  SaveRows(d, rstd, args.rstd, r, n);
}

/// Computes the statistics of rows [r, r + n) from their sums about `shift`, like FinishStatistics.
template <class T>
HWY_INLINE void FinishEight(const RowsForward<T>& args, int64_t r, int64_t n, Vec<Eight> shift,
                            Vec<Eight> first, Vec<Eight> second, EightCoefficients& coefficients) {
  using D = hn::CappedTag<double, 8>;
  const D d;
  const hn::Rebind<float, D> singles;
  constexpr size_t kLanes = hn::MaxLanes(D());
  const double reciprocal = 1 / static_cast<double>(args.cols);
  HWY_ALIGN float in[3][8], out[3][8];
  const Eight eight;
  hn::Store(shift, eight, in[0]);
  hn::Store(first, eight, in[1]);
  hn::Store(second, eight, in[2]);
  bool all_accurate = args.recipe.deviation == Deviation::kBiased;
  for (size_t i = 0; i < 8; i += kLanes) {
    const auto read = [&](int k)
                          HWY_ATTR { return hn::PromoteTo(d, hn::Load(singles, in[k] + i)); };
    const auto about = read(0), offset = hn::Mul(read(1), hn::Set(d, reciprocal));
    const auto square = hn::Mul(read(2), hn::Set(d, reciprocal));
    const auto var = hn::Sub(square, hn::Mul(offset, offset));
    all_accurate = all_accurate && hn::AllTrue(d, SumsAreAccurate<float>(d, var, square, args.eps));
    const auto rstd = hn::Div(hn::Set(d, 1.0), hn::Sqrt(hn::Add(var, hn::Set(d, args.eps))));
    const auto mean = hn::DemoteTo(singles, hn::Add(about, offset));
    const auto lo = hn::Add(hn::Sub(about, hn::PromoteTo(d, mean)), offset);
    hn::Store(mean, singles, out[0] + i);
    hn::Store(hn::DemoteTo(singles, lo), singles, out[1] + i);
    hn::Store(hn::DemoteTo(singles, rstd), singles, out[2] + i);
  }
  SaveEight(args, r, n, hn::Load(eight, out[0]), hn::Load(eight, out[1]), hn::Load(eight, out[2]),
            coefficients);
  if (all_accurate) [[likely]]
    return;
  for (int64_t i = 0; i < n; ++i) {
    const RowSums sums{in[1][i], in[2][i]};
    coefficients.Set(
        i, FinishStatistics(args, r + i, static_cast<double>(in[0][i]), sums, reciprocal));
  }
}

/// Returns whether rows of `out` are written side by side. Requires rows that begin at vectors: the
/// processor combines stores that cross cache lines only if they follow each other. Prefetched
/// outputs are also written one row at a time.
template <class D, class T>
HWY_INLINE bool SideBySide(D, const T* out, int64_t stride, bool prefetched) {
  // 16-bit elements are stored two vectors at a time.
  constexpr uint64_t kBytes = hn::MaxLanes(D()) * sizeof(float);
  const uint64_t begins =
      reinterpret_cast<uintptr_t>(out) | static_cast<uint64_t>(stride) * sizeof(T);
  return begins % kBytes == 0 && !prefetched;
}

/// Computes the statistics of rows [r, r + n).
template <bool kCentre, bool kNtStores, class D, class T>
HWY_INLINE void SumEight(D d, const RowsForward<T>& args, int64_t r, int64_t n,
                         EightCoefficients& coefficients) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t cols = args.cols, last = cols - lanes, rest = cols % lanes;
  const auto mask = LastLanes(d, rest);
  const Eight eight;
  const auto row = [&](int64_t i) HWY_ATTR { return args.x + (r + i) * args.x_stride; };
  // Missing rows repeat the last one.
  const auto repeat_last = [&](Vec<Eight>* v) HWY_ATTR {
    for (int64_t i = n; i < kGroup; ++i) v[i] = v[n - 1];
  };
  Vec<Eight> sums[8], squares[8];
  Vec<Eight> shift = hn::Zero(eight);
  HWY_ALIGN float shifts[8];
  if constexpr (kCentre) {
    for (int64_t i = 0; i < n; ++i) {
      sums[i] = FoldToEight(d, hn::Add(Read(d, row(i)), Read(d, row(i) + last / 2)));
    }
    repeat_last(sums);
    shift = hn::Mul(SumsOfEight(sums), hn::Set(eight, 0.5f / static_cast<float>(lanes)));
    hn::Store(shift, eight, shifts);
  }
  for (int64_t i = 0; i < n; ++i) {
    const T* x = row(i);
    const Vec<D> about = kCentre ? hn::Set(d, shifts[i]) : hn::Zero(d);
    // Same order as SumChunkLanes.
    PairSums<D> row_sums(d);
    int64_t c = 0;
    for (; c + 2 * lanes <= cols; c += 2 * lanes) {
      if constexpr (kNtStores) PrefetchTwo(d, x + c);
      row_sums.template AddPair<kCentre>(d, x + c, about);
    }
    if constexpr (kNtStores) PrefetchTwo(d, x + c);
    if (c <= last) AddSums<kCentre>(d, x + c, about, row_sums.first0, row_sums.second0);
    if (rest > 0) {
      Vec<D> v = Read(d, x + last);
      if constexpr (kCentre) v = hn::Sub(v, about);
      v = hn::IfThenElseZero(mask, v);
      if constexpr (kCentre) row_sums.first1 = hn::Add(row_sums.first1, v);
      row_sums.second1 = hn::MulAdd(v, v, row_sums.second1);
    }
    sums[i] = FoldToEight(d, hn::Add(row_sums.first0, row_sums.first1));
    squares[i] = FoldToEight(d, hn::Add(row_sums.second0, row_sums.second1));
  }
  repeat_last(sums);
  repeat_last(squares);
  FinishEight(args, r, n, shift, SumsOfEight(sums), SumsOfEight(squares), coefficients);
}

/// Writes the results of rows [r, r + n) to `y`, kRows side by side.
template <int64_t kRows, Output kOutput, bool kCentre, class D, class T>
HWY_INLINE void MapEight(D d, const RowsForward<T>& args, int64_t r, int64_t n,
                         const EightCoefficients& coefficients, T* y, int64_t y_stride) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t cols = args.cols, last = cols - lanes;
  const OutputArgs<float> out{args.gain, args.bias, args.scale, -args.scale * args.slope};
  for (int64_t i = 0; i < n; i += kRows) {
    // A missing row repeats the first of the group and writes the same values.
    const T* x[kRows];
    T* to[kRows];
    Vec<D> mean[kRows], rstd[kRows], offset[kRows], tail[kRows];
    for (int64_t j = 0; j < kRows; ++j) {
      const int64_t k = i + j < n ? i + j : i;
      x[j] = args.x + (r + k) * args.x_stride;
      to[j] = y + k * y_stride;
      mean[j] = hn::Set(d, coefficients.mean[k]);
      rstd[j] = hn::Set(d, coefficients.rstd[k]);
      offset[j] = hn::Set(d, coefficients.offset[k]);
      tail[j] =
          Normalize<kOutput, kCentre>(d, x[j] + last, out.At(last), mean[j], rstd[j], offset[j]);
    }
    int64_t c = 0;
    if constexpr (kSplitsPairs<D, T>) {
      for (; c + 2 * lanes <= cols; c += 2 * lanes) {
        VectorPair<D> gain{mean[0], mean[0]}, bias = gain;
        if constexpr (kOutput == Output::kAffine) {
          gain = ReadParameterPair<T, false>(d, out.gain + c);
          bias = ReadParameterPair<T, false>(d, out.bias + c);
        }
        VectorPair<D> v[kRows];
        for (int64_t j = 0; j < kRows; ++j) {
          v[j] = NormalizePairBy<kOutput, kCentre>(d, x[j] + c, gain, bias, out, mean[j], rstd[j],
                                                   offset[j]);
        }
        for (int64_t j = 0; j < kRows; ++j) PutPair<false>(d, v[j], to[j] + c);
      }
    }
    for (; c < last; c += lanes) {
      Vec<D> v[kRows];
      for (int64_t j = 0; j < kRows; ++j) {
        v[j] = Normalize<kOutput, kCentre>(d, x[j] + c, out.At(c), mean[j], rstd[j], offset[j]);
      }
      for (int64_t j = 0; j < kRows; ++j) Write(d, v[j], to[j] + c);
    }
    if (c < cols) {
      for (int64_t j = 0; j < kRows; ++j) Write(d, tail[j], to[j] + last);
    }
  }
}

/// Computes ForwardRows for columns between the number of lanes and kChunk. Gives the same bits as
/// ForwardRowsWide.
template <Output kOutput, bool kCentre, bool kNtStores, class D, class T>
HWY_NOINLINE void ForwardRowsNarrow(D d, const RowsForward<T>& args, int64_t begin, int64_t end) {
  const int64_t cols = args.cols;
  const bool side_by_side = kNtStores || SideBySide(d, args.y, args.y_stride, args.prefetch_output);
  EightCoefficients coefficients;
  Staged<T> staged(args.y + begin * args.y_stride);  // used only with kNtStores
  for (int64_t r = begin; r < end; r += kGroup) {
    const int64_t n = std::min(kGroup, end - r);
    if (args.pass != Pass::kResults) SumEight<kCentre, kNtStores>(d, args, r, n, coefficients);
    if (args.pass == Pass::kStatistics) continue;
    if (args.revise) (*args.revise)(r, r + n);
    if (args.revise || args.pass == Pass::kResults) LoadEight(args, r, n, coefficients);
    T* y = kNtStores ? staged.next() : args.y + r * args.y_stride;
    const int64_t y_stride = kNtStores ? cols : args.y_stride;
    if (side_by_side) {
      MapEight<kRowsSideBySide, kOutput, kCentre>(d, args, r, n, coefficients, y, y_stride);
    } else {
      MapEight<1, kOutput, kCentre>(d, args, r, n, coefficients, y, y_stride);
    }
    if constexpr (kNtStores) staged.Add(n * cols);
  }
  if constexpr (kNtStores) staged.Finish();
  FinishStores<kNtStores>();
}

/// Constants of eight rows for dx, as in GradientCoefficients.
struct EightGradients {
  HWY_ALIGN float mean_g[8];
  HWY_ALIGN float mean_g_xhat[8];
};

/// Computes FinishGradient for rows [r, r + n).
template <class T>
HWY_INLINE void FinishEightGradients(const RowsBackward<T>& args, int64_t r, int64_t n,
                                     const EightCoefficients& coefficients, Vec<Eight> sum_g,
                                     Vec<Eight> sum_g_xhat, EightGradients& gradients) {
  const Eight eight;
  const double reciprocal = 1 / static_cast<double>(args.cols);
  hn::Store(sum_g, eight, gradients.mean_g);
  hn::Store(sum_g_xhat, eight, gradients.mean_g_xhat);
  if (args.recipe.deviation != Deviation::kBiased || args.factors != nullptr) [[unlikely]] {
    for (int64_t i = 0; i < n; ++i) {
      const RowCoefficients<float> row_coefficients{coefficients.mean[i], coefficients.rstd[i],
                                                    coefficients.offset[i]};
      const auto full =
          FinishGradient(args, r + i, row_coefficients,
                         RowSums{gradients.mean_g[i], gradients.mean_g_xhat[i]}, reciprocal);
      gradients.mean_g[i] = full.mean_g;
      gradients.mean_g_xhat[i] = full.mean_g_xhat;
    }
    return;
  }
  using D = hn::CappedTag<double, 8>;
  const D d;
  const hn::Rebind<float, D> singles;
  const auto scale = [&](float* sums, bool wanted) HWY_ATTR {
    const auto factor = hn::Set(d, wanted ? reciprocal : 0.0);
    for (size_t i = 0; i < 8; i += hn::MaxLanes(D())) {
      const auto sum = hn::PromoteTo(d, hn::Load(singles, sums + i));
      const auto mean = wanted ? hn::Mul(sum, factor) : hn::Zero(d);
      hn::Store(hn::DemoteTo(singles, mean), singles, sums + i);
    }
  };
  scale(gradients.mean_g, args.recipe.via_mean);
  scale(gradients.mean_g_xhat, args.recipe.via_scale);
}

/// Computes the sums of g and g * xhat of kRows rows in the order of SumGradientChunkLanes, folded
/// to eight lanes. Adds their terms to dgain and dbias.
template <int64_t kRows, Output kOutput, bool kReadX, bool kColumns, bool kNtStores, class D,
          class T>
HWY_NOINLINE void SumGradientsNarrow(D d, const RowsBackward<T>& args, int64_t row,
                                     const EightCoefficients& coefficients, int64_t i, float* dgain,
                                     float* dbias, Vec<Eight>* sums_g, Vec<Eight>* sums_g_xhat) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t cols = args.cols, rest = cols % lanes;
  const GradientArgs<float> out{args.gain, args.scale, -args.scale * args.slope};
  const T* dy[kRows];
  const T* x[kRows];
  Vec<D> mean[kRows], rstd[kRows], offset[kRows];
  Vec<D> g0[kRows], g1[kRows], gx0[kRows], gx1[kRows];
  for (int64_t j = 0; j < kRows; ++j) {
    dy[j] = args.dy + (row + j) * args.dy_stride;
    x[j] = args.x + (row + j) * args.x_stride;
    mean[j] = hn::Set(d, coefficients.mean[i + j]);
    rstd[j] = hn::Set(d, coefficients.rstd[i + j]);
    offset[j] = hn::Set(d, coefficients.offset[i + j]);
    g0[j] = g1[j] = gx0[j] = gx1[j] = hn::Zero(d);
  }
  const auto prefetch = [&](int64_t j, int64_t c) HWY_ATTR {
    if constexpr (kNtStores) {
      PrefetchFarAhead(dy[j] + c, lanes);
      if constexpr (kReadX) PrefetchFarAhead(x[j] + c, lanes);
    }
  };
  const auto add = [&](int64_t c, Vec<D>* g, Vec<D>* gx, auto whole, auto mask) HWY_ATTR {
    Vec<D> gain_sum = hn::Zero(d), bias_sum = hn::Zero(d);
    if constexpr (kColumns) {
      gain_sum = hn::LoadU(d, dgain + c);
      bias_sum = hn::LoadU(d, dbias + c);
    }
    for (int64_t j = 0; j < kRows; ++j) {
      prefetch(j, c);
      Vec<D> v = Read(d, dy[j] + c);
      Vec<D> xhat = XhatOf<kReadX>(d, x[j] + c, mean[j], rstd[j], offset[j]);
      if constexpr (!whole()) {
        v = hn::IfThenElseZero(mask, v);
        xhat = hn::IfThenElseZero(mask, xhat);
      }
      if constexpr (kColumns) {
        gain_sum = hn::MulAdd(v, xhat, gain_sum);
        bias_sum = hn::Add(v, bias_sum);
      }
      const GradientArgs<float> here = out.At(c);
      const Vec<D> gradient = GradientOfXhat<kOutput>(d, v, xhat, GainOf<kOutput>(d, here), here);
      g[j] = hn::Add(g[j], gradient);
      if constexpr (kReadX) gx[j] = hn::MulAdd(gradient, xhat, gx[j]);
    }
    if constexpr (kColumns) {
      hn::StoreU(gain_sum, d, dgain + c);
      hn::StoreU(bias_sum, d, dbias + c);
    }
  };
  // Same order as AddGradientPair.
  const auto add_pair = [&](int64_t c) HWY_ATTR {
    VectorPair<D> gain_sum{hn::Zero(d), hn::Zero(d)}, bias_sum = gain_sum;
    if constexpr (kColumns) {
      gain_sum = {hn::LoadU(d, dgain + c), hn::LoadU(d, dgain + c + lanes)};
      bias_sum = {hn::LoadU(d, dbias + c), hn::LoadU(d, dbias + c + lanes)};
    }
    const VectorPair<D> gain = GainPairOf<kOutput, T, false>(d, out.At(c));
    for (int64_t j = 0; j < kRows; ++j) {
      prefetch(j, c);
      const VectorPair<D> v = ReadPair(d, dy[j] + c);
      const VectorPair<D> xhat = XhatPairOf<kReadX>(d, x[j] + c, mean[j], rstd[j], offset[j]);
      if constexpr (kColumns) {
        gain_sum.first = hn::MulAdd(v.first, xhat.first, gain_sum.first);
        gain_sum.second = hn::MulAdd(v.second, xhat.second, gain_sum.second);
        bias_sum.first = hn::Add(v.first, bias_sum.first);
        bias_sum.second = hn::Add(v.second, bias_sum.second);
      }
      const Vec<D> first = GradientOfXhat<kOutput>(d, v.first, xhat.first, gain.first, out);
      const Vec<D> second = GradientOfXhat<kOutput>(d, v.second, xhat.second, gain.second, out);
      g0[j] = hn::Add(g0[j], first);
      g1[j] = hn::Add(g1[j], second);
      if constexpr (kReadX) gx0[j] = hn::MulAdd(first, xhat.first, gx0[j]);
      if constexpr (kReadX) gx1[j] = hn::MulAdd(second, xhat.second, gx1[j]);
    }
    if constexpr (kColumns) {
      hn::StoreU(gain_sum.first, d, dgain + c);
      hn::StoreU(gain_sum.second, d, dgain + c + lanes);
      hn::StoreU(bias_sum.first, d, dbias + c);
      hn::StoreU(bias_sum.second, d, dbias + c + lanes);
    }
  };
  const auto all = hn::FirstN(d, static_cast<size_t>(lanes));
  int64_t c = 0;
  for (; c + 2 * lanes <= cols; c += 2 * lanes) {
    if constexpr (kSplitsPairs<D, T>) {
      add_pair(c);
    } else {
      add(c, g0, gx0, std::true_type(), all);
      add(c + lanes, g1, gx1, std::true_type(), all);
    }
  }
  if (c + lanes <= cols) add(c, g0, gx0, std::true_type(), all);
  if (rest > 0) add(cols - lanes, g1, gx1, std::false_type(), LastLanes(d, rest));
  for (int64_t j = 0; j < kRows; ++j) {
    sums_g[i + j] = FoldToEight(d, hn::Add(g0[j], g1[j]));
    sums_g_xhat[i + j] = FoldToEight(d, hn::Add(gx0[j], gx1[j]));
  }
}

/// Writes dx of rows [r, r + n) to `dx`, kRows side by side.
template <int64_t kRows, Output kOutput, bool kReadX, class D, class T>
HWY_INLINE void MapEightGradients(D d, const RowsBackward<T>& args, int64_t r, int64_t n,
                                  const EightCoefficients& coefficients,
                                  const EightGradients& gradients, T* dx, int64_t dx_stride) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t cols = args.cols, last = cols - lanes;
  const GradientArgs<float> out{args.gain, args.scale, -args.scale * args.slope};
  for (int64_t i = 0; i < n; i += kRows) {
    // A missing row repeats the first of the group and writes the same values.
    GradientRow<T> row[kRows];
    T* to[kRows];
    Vec<D> mean[kRows], rstd[kRows], offset[kRows];
    Vec<D> mean_g[kRows], mean_g_xhat[kRows], tail[kRows];
    const auto gradient = [&](int64_t j, int64_t c) HWY_ATTR {
      return InputGradient<kOutput, kReadX>(d, row[j].dy + c, row[j].x + c, out.At(c), mean[j],
                                            rstd[j], offset[j], mean_g[j], mean_g_xhat[j]);
    };
    for (int64_t j = 0; j < kRows; ++j) {
      const int64_t k = i + j < n ? i + j : i;
      row[j] = {args.dy + (r + k) * args.dy_stride, args.x + (r + k) * args.x_stride};
      to[j] = dx + k * dx_stride;
      mean[j] = hn::Set(d, coefficients.mean[k]);
      rstd[j] = hn::Set(d, coefficients.rstd[k]);
      offset[j] = hn::Set(d, coefficients.offset[k]);
      mean_g[j] = hn::Set(d, gradients.mean_g[k]);
      mean_g_xhat[j] = hn::Set(d, gradients.mean_g_xhat[k]);
      tail[j] = gradient(j, last);
    }
    int64_t c = 0;
    if constexpr (kSplitsPairs<D, T>) {
      for (; c + 2 * lanes <= cols; c += 2 * lanes) {
        const VectorPair<D> gain = GainPairOf<kOutput, T, false>(d, out.At(c));
        VectorPair<D> v[kRows];
        for (int64_t j = 0; j < kRows; ++j) {
          v[j] = InputGradientPairBy<kOutput, kReadX>(d, row[j].At(c), gain, out, mean[j], rstd[j],
                                                      offset[j], mean_g[j], mean_g_xhat[j]);
        }
        for (int64_t j = 0; j < kRows; ++j) PutPair<false>(d, v[j], to[j] + c);
      }
    }
    for (; c < last; c += lanes) {
      Vec<D> v[kRows];
      for (int64_t j = 0; j < kRows; ++j) v[j] = gradient(j, c);
      for (int64_t j = 0; j < kRows; ++j) Write(d, v[j], to[j] + c);
    }
    if (c < cols) {
      for (int64_t j = 0; j < kRows; ++j) Write(d, tail[j], to[j] + last);
    }
  }
}

/// Computes BackwardRows with dx for columns between the number of lanes and kChunk. Gives the same
/// bits as BackwardRowsWide.
template <Output kOutput, bool kReadX, bool kColumns, bool kNtStores, class D, class T>
HWY_NOINLINE void BackwardRowsNarrow(D d, const RowsBackward<T>& args, int64_t begin, int64_t end,
                                     float* dgain, float* dbias) {
  const int64_t cols = args.cols;
  const bool side_by_side =
      kNtStores || SideBySide(d, args.dx, args.dx_stride, args.prefetch_output);
  EightCoefficients coefficients;
  EightGradients gradients;
  const SplitColumns<D, T> split_columns(d, cols, kColumns ? dgain : nullptr,
                                         kColumns ? dbias : nullptr);
  Staged<T> staged(args.dx + begin * args.dx_stride);  // used only with kNtStores
  for (int64_t r = begin; r < end; r += kGroup) {
    const int64_t n = std::min(kGroup, end - r);
    LoadEight(args, r, n, coefficients);
    Vec<Eight> sums_g[8], sums_g_xhat[8];
    int64_t i = 0;
    for (; i + kRowsSideBySide <= n; i += kRowsSideBySide) {
      SumGradientsNarrow<kRowsSideBySide, kOutput, kReadX, kColumns, kNtStores>(
          d, args, r + i, coefficients, i, dgain, dbias, sums_g, sums_g_xhat);
    }
    for (; i < n; ++i) {
      SumGradientsNarrow<1, kOutput, kReadX, kColumns, kNtStores>(
          d, args, r + i, coefficients, i, dgain, dbias, sums_g, sums_g_xhat);
    }
    for (; i < kGroup; ++i) sums_g[i] = sums_g_xhat[i] = hn::Zero(Eight());
    FinishEightGradients(args, r, n, coefficients, SumsOfEight(sums_g), SumsOfEight(sums_g_xhat),
                         gradients);

    T* dx = kNtStores ? staged.next() : args.dx + r * args.dx_stride;
    const int64_t dx_stride = kNtStores ? cols : args.dx_stride;
    if (side_by_side) {
      MapEightGradients<kRowsSideBySide, kOutput, kReadX>(d, args, r, n, coefficients, gradients,
                                                          dx, dx_stride);
    } else {
      MapEightGradients<1, kOutput, kReadX>(d, args, r, n, coefficients, gradients, dx, dx_stride);
    }
    if constexpr (kNtStores) staged.Add(n * cols);
  }
  if constexpr (kNtStores) staged.Finish();
  FinishStores<kNtStores>();
}

#endif  // HWY_MAX_BYTES >= 32

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_ROWS_NARROW_INL_H_
