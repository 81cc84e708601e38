// Weight normalization of narrow rows. Compiled once for each target, in namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_INL_H_
#undef PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_INL_H_
#else
#define PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "src/norm/channel_pass.h"
#include "src/norm/channels/columns-inl.h"
#include "src/norm/channels/weight_norm_kernels.h"
#include "src/norm/statistics-inl.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

// --- Tuning constants (docs/tuning.md) ---

// Rows whose scales are computed together.
inline constexpr int64_t kWeightRows = 64;

// --- End of tuning constants ---

/// Returns the sum of term(c) for c < cols, in vectors; cols >= lanes. Single lanes are added in
/// double, because there can be many.
template <class D, class Term>
HWY_INLINE double SumAlong(D d, int64_t cols, const Term& term) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if constexpr (hn::MaxLanes(D()) == 1) {
    double sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += static_cast<double>(hn::GetLane(term(c)));
    return sum;
  }
  Vec<D> sum = hn::Zero(d);
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) sum = hn::Add(sum, term(c));
  if (c < cols) {
    // Masks the lanes that have already been counted.
    sum = hn::Add(sum, hn::IfThenElseZero(LastLanes(d, cols - c), term(cols - lanes)));
  }
  return static_cast<double>(Sum(d, sum));
}

/// Computes out[c] = mapped(c), which can read `out`; cols >= lanes.
template <class D, class T, class F>
HWY_INLINE void MapRow(D d, T* out, int64_t cols, const F& mapped) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // Computed first, because it overlaps the vector before it.
  const Vec<D> last = mapped(cols - lanes);
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) Write(d, mapped(c), out + c);
  if (c < cols) Write(d, last, out + cols - lanes);
}

/// Returns g / norm, with plain NaNs.
template <class D, class Narrow>
HWY_INLINE Vec<Narrow> WeightScales(D, Narrow narrow, Vec<D> g, Vec<D> norm) {
  return PlainNan(narrow, Narrowed(narrow, hn::Div(g, norm)));
}

/// Writes rows [begin, begin + n) of w to `out`; n <= kWeightRows.
template <class D, class T>
HWY_INLINE void WeightBlock(D d, const WeightNormForwardArgs<T, Compute<T>>& args, int64_t begin,
                            int64_t n, T* out) {
  using C = Compute<T>;
  using Bounds = SquareBounds<C>;
  const int64_t cols = args.cols;
  const T* v = args.v + begin * cols;
  HWY_ALIGN double norms[kWeightRows];
  HWY_ALIGN C scales[kWeightRows];
  for (int64_t r = 0; r < n; ++r) {
    const T* row = v + r * cols;
    norms[r] = SumAlong(d, cols, [&](int64_t c) HWY_ATTR {
      const Vec<D> a = Read(d, row + c);
      return hn::Mul(a, a);
    });
  }
  bool all_accurate = true;
  ForColumns(hn::ScalableTag<double>(), n, [&](auto wide, int64_t r) HWY_ATTR {
    const auto square = hn::LoadU(wide, norms + r);
    const auto accurate = hn::And(hn::Le(square, hn::Set(wide, Bounds::kMax)),
                                  hn::Ge(square, hn::Set(wide, Bounds::kMin)));
    all_accurate &= hn::AllTrue(wide, accurate);
    // A negative norm marks rows whose sums are too inaccurate.
    hn::StoreU(hn::IfThenElse(accurate, hn::Sqrt(square), hn::Set(wide, -1.0)), wide, norms + r);
  });
  for (int64_t r = 0; !all_accurate && r < n; ++r) {
    if (norms[r] >= 0) continue;
    const Statistics m = TwoPassStatistics(v + r * cols, cols, false);
    norms[r] = std::sqrt(m.var * static_cast<double>(cols)) / m.scale;
    // An overflowed sum gives NaN, not a large norm.
    if (!(norms[r] <= std::numeric_limits<double>::max())) {
      norms[r] = std::numeric_limits<double>::quiet_NaN();
    }
  }
  ForColumns(hn::ScalableTag<double>(), n, [&](auto wide, int64_t r) HWY_ATTR {
    const hn::Rebind<C, decltype(wide)> narrow;
    const auto norm = hn::LoadU(wide, norms + r);
    const auto g = Widened(wide, hn::LoadU(narrow, args.g + begin + r));
    hn::StoreU(WeightScales(wide, narrow, g, norm), narrow, scales + r);
    if (args.norm) hn::StoreU(Narrowed(narrow, norm), narrow, args.norm + begin + r);
  });
  for (int64_t r = 0; r < n; ++r) {
    const T* row = v + r * cols;
    const Vec<D> scale = hn::Set(d, scales[r]);
    MapRow(d, out + r * cols, cols,
           [&](int64_t c) HWY_ATTR { return hn::Mul(Read(d, row + c), scale); });
  }
}

/// Writes rows [begin, begin + n) of dv to `out`, and dg.
template <class D, class T>
HWY_INLINE void WeightBlock(D d, const WeightNormBackwardArgs<T, Compute<T>>& args, int64_t begin,
                            int64_t n, T* out) {
  using C = Compute<T>;
  const int64_t cols = args.cols;
  const T* v = args.v + begin * cols;
  const T* dw = args.dw + begin * cols;
  HWY_ALIGN C scales[kWeightRows], reciprocals[kWeightRows], dg[kWeightRows];
  ForColumns(hn::ScalableTag<double>(), n, [&](auto wide, int64_t r) HWY_ATTR {
    const hn::Rebind<C, decltype(wide)> narrow;
    const auto norm = Widened(wide, hn::LoadU(narrow, args.norm + begin + r));
    hn::StoreU(WeightScales(wide, narrow, hn::Set(wide, 1.0), norm), narrow, reciprocals + r);
    if (out == nullptr) return;
    const auto g = Widened(wide, hn::LoadU(narrow, args.g + begin + r));
    hn::StoreU(WeightScales(wide, narrow, g, norm), narrow, scales + r);
  });
  const auto xhat = [&](int64_t r, int64_t c) HWY_ATTR {
    return hn::Mul(Read(d, v + r * cols + c), hn::Set(d, reciprocals[r]));
  };
  for (int64_t r = 0; r < n; ++r) {
    dg[r] = static_cast<C>(SumAlong(d, cols, [&](int64_t c) HWY_ATTR {
      return hn::Mul(Read(d, dw + r * cols + c), xhat(r, c));
    }));
  }
  if (args.dg) std::copy_n(dg, n, args.dg + begin);
  for (int64_t r = 0; out != nullptr && r < n; ++r) {
    const Vec<D> scale = hn::Set(d, scales[r]), sum = hn::Set(d, dg[r]);
    MapRow(d, out + r * cols, cols, [&](int64_t c) HWY_ATTR {
      return hn::Mul(hn::NegMulAdd(xhat(r, c), sum, Read(d, dw + r * cols + c)), scale);
    });
  }
}

/// Computes NormalizeWeights or WeightGradients of `args` for rows [begin, end).
template <bool kNtStores, class D, template <class, class> class Args, class T>
HWY_NOINLINE void WeightRowsOf(D d, const Args<T, Compute<T>>& args, int64_t begin, int64_t end) {
  const auto map = [&](int64_t first, int64_t rows, T* out) HWY_ATTR {
    for (int64_t r = 0; r < rows; r += kWeightRows) {
      T* block = out ? out + r * args.cols : nullptr;
      WeightBlock(d, args, first + r, std::min(kWeightRows, rows - r), block);
    }
  };
  T* out = ArraysOf(args).out;
  if (out) out += begin * args.cols;
  if constexpr (kNtStores) {
    NtStoreRows(hn::ScalableTag<Compute<T>>(), out, end - begin, args.cols,
                [&](int64_t r, int64_t n, T* buffer) HWY_ATTR { map(begin + r, n, buffer); });
    FinishStores<kNtStores>();
  } else {
    map(begin, end - begin, out);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_INL_H_
