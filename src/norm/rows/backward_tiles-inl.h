// Backward kernels of tiles of columns, whose sums are already known. Compiled once for each
// target, in namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_ROWS_BACKWARD_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_ROWS_BACKWARD_TILES_INL_H_
#undef PLANISH_SRC_NORM_ROWS_BACKWARD_TILES_INL_H_
#else
#define PLANISH_SRC_NORM_ROWS_BACKWARD_TILES_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "src/base/tuning.h"
#include "src/norm/rows/backward-inl.h"
#include "src/norm/rows/row_ends-inl.h"
#include "src/norm/rows/rows.h"
#include "src/norm/rows/shared-inl.h"
#include "src/norm/statistics-inl.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

/// Computes GradientTile for kRows rows from `row` on, whose sums begin at `sums`. Reads and writes
/// dgain and dbias once for all of them.
template <Output kOutput, bool kReadX, bool kDx, bool kColumns, bool kNtStores, int64_t kRows,
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
  RowEnds<kNtStores, D, T> ends[kDx ? kRows : 1];
  Vec<D> mean[kRows], rstd[kRows], offset[kRows], mean_g[kRows], mean_gx[kRows];
  for (int64_t i = 0; i < kRows; ++i) {
    const int64_t r = row + i;
    in[i] = GradientRow<T>{args.dy + r * args.dy_stride, args.x + r * args.x_stride}.At(first);
    RowSums row_sums;
    if constexpr (kDx) {
      dx[i] = args.dx + r * args.dx_stride + first;
      row_sums = {sums[2 * i], sums[2 * i + 1]};
    }
    const GradientCoefficients<C> coefficients = FinishGradient(
        args, r, SavedCoefficients(args, r), row_sums, 1 / static_cast<double>(args.cols));
    mean[i] = hn::Set(d, coefficients.coefficients.mean);
    rstd[i] = hn::Set(d, coefficients.coefficients.rstd);
    offset[i] = hn::Set(d, coefficients.coefficients.offset);
    mean_g[i] = hn::Set(d, coefficients.mean_g);
    mean_gx[i] = hn::Set(d, coefficients.mean_g_xhat);
  }
  // All rows of dx have the same alignment, or kNtStores is false.
  const RowLayout<kNtStores, D, T> layout(d, kDx ? dx[0] : nullptr, cols);

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
        PutPair<kNtStores>(d,
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
    work(c, [&](int64_t i, Vec<D> v) HWY_ATTR { Put<kNtStores>(d, v, dx[i] + c); }, kWhole, all);
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
template <Output kOutput, bool kReadX, bool kDx, bool kColumns, bool kNtStores, int64_t kRows,
          class D, class T>
HWY_INLINE void TileInGroups(D d, const RowsBackward<T>& args, int64_t begin, int64_t end,
                             int64_t first, int64_t last, const double* sums, Compute<T>* dgain,
                             Compute<T>* dbias) {
  int64_t r = begin;
  const bool alike = !kNtStores || args.dx_stride * static_cast<int64_t>(sizeof(T)) %
                                           static_cast<int64_t>(hn::Lanes(d) * sizeof(T)) ==
                                       0;
  for (; alike && r + kRows <= end; r += kRows) {
    TileOfRows<kOutput, kReadX, kDx, kColumns, kNtStores, kRows>(
        d, args, r, first, last, sums + 2 * (r - begin), dgain, dbias);
  }
  for (; r < end; ++r) {
    TileOfRows<kOutput, kReadX, kDx, kColumns, kNtStores, 1>(d, args, r, first, last,
                                                             sums + 2 * (r - begin), dgain, dbias);
  }
  FinishStores<kNtStores>();
}

/// Implements GradientTile.
template <Output kOutput, bool kReadX, bool kDx, bool kColumns, bool kNtStores, class D, class T>
void GradientTileWide(D d, const RowsBackward<T>& args, int64_t begin, int64_t end, int64_t first,
                      int64_t last, const double* sums, Compute<T>* dgain, Compute<T>* dbias) {
  // Only targets with the widest vectors have enough registers for four rows.
  if constexpr (hn::MaxLanes(D()) * sizeof(Compute<T>) >= 64) {
    if (CurrentTuning().l1_holds_four_rows) {
      TileInGroups<kOutput, kReadX, kDx, kColumns, kNtStores, 4>(d, args, begin, end, first, last,
                                                                 sums, dgain, dbias);
      return;
    }
  }
  TileInGroups<kOutput, kReadX, kDx, kColumns, kNtStores, 2>(d, args, begin, end, first, last, sums,
                                                             dgain, dbias);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_ROWS_BACKWARD_TILES_INL_H_
