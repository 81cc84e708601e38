// Kernels of norms down columns. Compiled once for each target, in namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_INL_H_
#undef PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_INL_H_
#else
#define PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "src/norm/channels/channel_norm_kernels.h"
#include "src/norm/channels/columns-inl.h"
#include "src/norm/rows/prefetch-inl.h"
#include "src/norm/rows/row_ends-inl.h"
#include "src/norm/rows/shared-inl.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

/// Coefficients of a vector of columns, shared by all rows.
template <class D>
struct ColumnCoefficients {
  Vec<D> mean, rstd, offset;
  Vec<D> mean_g, mean_g_xhat;
};

/// Options of the elementwise operation on rows.
struct Mapping {
  bool use_nt_stores = false;    // non-temporal stores
  bool in_groups = true;         // several rows at a time
  bool prefetch_output = false;  // prefetches the output lines of the next rows
};

/// Computes out[k * stride + c] = mapped(tag, k, c, shared(tag, c)) for k < kRows and c < cols;
/// `out` can be the input. With `use_nt_stores`, all rows must have the same alignment. With
/// `prefetch_output`, prefetches the output lines of the next rows, which the hardware prefetcher
/// does not follow.
template <Mapping kHow, int kRows, class D, class T, class Shared, class F>
HWY_INLINE void MapAlong(D d, T* out, int64_t stride, int64_t cols, const Shared& shared,
                         const F& mapped) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (cols < lanes) {
    const OneLane<D> one;
    for (int64_t c = 0; c < cols; ++c) {
      const auto common = shared(one, c);
      for (int k = 0; k < kRows; ++k) {
        Write(one, mapped(one, k, c, common), out + k * stride + c);
      }
    }
    return;
  }
  const RowLayout<kHow.use_nt_stores, D, T> layout(d, out, cols);
  const int64_t last = cols - lanes;
  Vec<D> tails[kRows];
  if (kHow.use_nt_stores && layout.lead > 0) {
    const auto common = shared(d, 0);
    for (int k = 0; k < kRows; ++k) {
      WriteLanes(d, mapped(d, k, 0, common), 0, layout.lead, out + k * stride);
    }
  } else if (!kHow.use_nt_stores && layout.rest > 0) {
    // Computed first, because the last vector overlaps the one before.
    const auto common = shared(d, last);
    for (int k = 0; k < kRows; ++k) tails[k] = mapped(d, k, last, common);
  }
  for (int64_t c = layout.lead; c <= last; c += lanes) {
    const auto common = shared(d, c);
    for (int k = 0; k < kRows; ++k) {
      if constexpr (kHow.prefetch_output) PrefetchFar(out + (k + kRowsAtOnce) * stride + c);
      Put<kHow.use_nt_stores>(d, mapped(d, k, c, common), out + k * stride + c);
    }
  }
  if (layout.rest == 0) return;
  if constexpr (kHow.use_nt_stores) {
    const auto common = shared(d, last);
    for (int k = 0; k < kRows; ++k) {
      WriteLanes(d, mapped(d, k, last, common), lanes - layout.rest, lanes,
                 out + k * stride + last);
    }
  } else {
    for (int k = 0; k < kRows; ++k) Write(d, tails[k], out + k * stride + last);
  }
}

/// Calls f(rows, r) for groups of rows from r on, with the constant `rows`, until all are
/// processed.
template <bool kInGroups, class F>
HWY_INLINE void ForRowGroups(int64_t rows, const F& f) {
  int64_t r = 0;
  if constexpr (kInGroups) {
    for (; r + kRowsAtOnce <= rows; r += kRowsAtOnce) {
      f(std::integral_constant<int, kRowsAtOnce>(), r);
    }
  }
  for (; r < rows; ++r) f(std::integral_constant<int, 1>(), r);
}

/// Calls map(how, call) with a constant Mapping for the rows of `args`, whose results go to
/// args.*out.
template <bool kNtStores, class D, class Args, class T, class Map>
HWY_INLINE void MapInRows(D d, const Args& args, T* Args::* out, const Map& map) {
  if constexpr (kNtStores) {
    constexpr std::integral_constant<Mapping, Mapping{.use_nt_stores = true}> kGrouped;
    constexpr std::integral_constant<Mapping, Mapping{.use_nt_stores = true, .in_groups = false}>
        kOne;
    constexpr std::integral_constant<Mapping, Mapping{.in_groups = false}> kBuffered;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    if (args.stride % lanes == 0) {
      map(kGrouped, args);
    } else if (args.cols == args.stride && args.cols <= kBufferedColumns) {
      NtStoreRows(d, args.*out, args.rows, args.cols,
                  [&](int64_t r, int64_t n, T* buffer) HWY_ATTR {
                    Args call = args.From(r, n);
                    call.*out = buffer;
                    map(kBuffered, call);
                  });
    } else {
      map(kOne, args);
    }
    FinishStores<kNtStores>();
  } else if (args.prefetch_output) {
    map(std::integral_constant<Mapping, Mapping{.prefetch_output = true}>(), args);
  } else {
    map(std::integral_constant<Mapping, Mapping{}>(), args);
  }
}

// --- Statistics ---

/// Implements FinishColumns: StatisticsOf, ReciprocalDeviation and SaveStatistics for vectors of
/// columns.
template <class T>
bool FinishColumnsOf(const Recipe& recipe, double eps, int64_t count, int64_t cols,
                     const Compute<T>* shift, const double* first, const double* second,
                     const ColumnStatistics<Compute<T>>& statistics, bool* two_pass) {
  using C = Compute<T>;
  const double n = static_cast<double>(count);
  const bool plus_eps = recipe.deviation == Deviation::kUnbiasedPlusEps;
  bool any = false;
  ForColumns(hn::ScalableTag<double>(), cols, [&](auto d, int64_t c) HWY_ATTR {
    const hn::Rebind<C, decltype(d)> narrow;
    const auto divisor = hn::Set(d, n), one = hn::Set(d, 1.0);
    const auto square = hn::Div(hn::LoadU(d, second + c), divisor);
    auto offset = hn::Zero(d), about = offset;
    if (recipe.centre) {
      offset = hn::Div(hn::LoadU(d, first + c), divisor);
      about = Widened(d, hn::LoadU(narrow, shift + c));
    }
    const auto var = hn::Sub(square, hn::Mul(offset, offset));
    any |= MarkTwoPass(d, SumsAreAccurate<C>(d, var, square, eps), two_pass + c);
    auto deviation = hn::Sqrt(hn::Add(var, hn::Set(d, eps)));
    if (plus_eps) {
      deviation = hn::Add(hn::Sqrt(hn::Mul(var, hn::Set(d, n / (n - 1)))), hn::Set(d, eps));
    }
    const auto mean = Narrowed(narrow, hn::Add(about, offset));
    const auto mean_lo = Narrowed(narrow, hn::Add(hn::Sub(about, Widened(d, mean)), offset));
    const auto rstd = Narrowed(narrow, hn::Div(one, deviation));
    hn::StoreU(mean, narrow, statistics.mean + c);
    hn::StoreU(mean_lo, narrow, statistics.mean_lo + c);
    hn::StoreU(rstd, narrow, statistics.rstd + c);
    hn::StoreU(hn::Mul(hn::Neg(mean_lo), rstd), narrow, statistics.offset + c);
  });
  return any;
}

/// Implements SavedColumns. `mean` and `mean_lo` can be null.
template <class C>
void SavedColumnsOf(const C* mean, const C* mean_lo, const C* rstd, int64_t cols,
                    const ColumnStatistics<C>& statistics) {
  ForColumns(hn::ScalableTag<C>(), cols, [&](auto d, int64_t c) HWY_ATTR {
    const auto zero = hn::Zero(d);
    // As in CoefficientsOf.
    const auto reciprocal = PlainNan(d, hn::LoadU(d, rstd + c));
    const auto lo = mean_lo ? hn::LoadU(d, mean_lo + c) : zero;
    hn::StoreU(mean ? hn::LoadU(d, mean + c) : zero, d, statistics.mean + c);
    hn::StoreU(reciprocal, d, statistics.rstd + c);
    hn::StoreU(hn::Mul(hn::Neg(lo), reciprocal), d, statistics.offset + c);
  });
}

/// Implements FinishGradients: FinishGradient for vectors of columns.
template <class C>
void FinishGradientsOf(const Recipe& recipe, double eps, int64_t count, int64_t cols,
                       const C* rstds, const double* first, const double* second, C* mean_g,
                       C* mean_g_xhat) {
  const double n = static_cast<double>(count);
  ForColumns(hn::ScalableTag<double>(), cols, [&](auto d, int64_t c) HWY_ATTR {
    const hn::Rebind<C, decltype(d)> narrow;
    const auto reciprocal = hn::Set(d, 1 / n);
    auto of_g = hn::Zero(d), of_g_xhat = of_g;
    if (recipe.via_mean) of_g = hn::Mul(hn::LoadU(d, first + c), reciprocal);
    if (recipe.via_scale) of_g_xhat = hn::Mul(hn::LoadU(d, second + c), reciprocal);
    if (recipe.deviation == Deviation::kUnbiasedPlusEps) {
      const auto plus_eps = hn::Div(hn::Set(d, 1.0), Widened(d, hn::LoadU(narrow, rstds + c)));
      const auto deviation = hn::Sub(plus_eps, hn::Set(d, eps));
      const auto factor = hn::Mul(hn::Set(d, n / (n - 1)), hn::Div(plus_eps, deviation));
      of_g_xhat = hn::Mul(of_g_xhat, hn::IfThenElseZero(hn::Gt(deviation, hn::Zero(d)), factor));
    }
    hn::StoreU(Narrowed(narrow, of_g), narrow, mean_g + c);
    hn::StoreU(Narrowed(narrow, of_g_xhat), narrow, mean_g_xhat + c);
  });
}

// --- Forward ---

template <Output kOutput, bool kCentre, bool kEach, Mapping kHow, class D, class T>
HWY_NOINLINE void MapForwardRows(D d, const ColumnsForward<T>& args) {
  using C = Compute<T>;
  const C neg_slope = -args.scale * args.slope, scale = args.scale;
  const int64_t stride = args.stride, ahead = args.ahead;
  const C* means = args.mean;
  const C* rstds = args.rstd;
  const C* offsets = args.offset;
  ForRowGroups<kHow.in_groups>(args.rows, [&](auto rows, int64_t r) HWY_ATTR {
    constexpr int kRows = rows();
    const T* x = args.x + r * stride;
    const C* gains = nullptr;
    const C* biases = nullptr;
    C gain[kRows] = {}, bias[kRows] = {};  // copies, because stores cannot change them
    if constexpr (kOutput == Output::kAffine) {
      gains = args.gain + (kEach ? r * stride : r);
      biases = args.bias + (kEach ? r * stride : r);
      for (int k = 0; !kEach && k < kRows; ++k) {
        gain[k] = gains[k];
        bias[k] = biases[k];
      }
    }
    const auto shared = [&](auto tag, int64_t c) HWY_ATTR {
      ColumnCoefficients<decltype(tag)> coefficients{hn::Zero(tag), hn::LoadU(tag, rstds + c),
                                                     hn::Zero(tag)};
      if constexpr (kCentre) {
        coefficients.mean = hn::LoadU(tag, means + c);
        coefficients.offset = hn::LoadU(tag, offsets + c);
      }
      return coefficients;
    };
    const auto mapped = [&](auto tag, int k, int64_t c, const auto& coefficients) HWY_ATTR {
      const T* at = x + k * stride + c;
      if (ahead != 0) PrefetchFar(at + ahead);
      auto xhat = Read(tag, at);
      if constexpr (kCentre) {
        xhat = hn::MulAdd(hn::Sub(xhat, coefficients.mean), coefficients.rstd, coefficients.offset);
      } else {
        xhat = hn::Mul(xhat, coefficients.rstd);
      }
      if constexpr (kOutput == Output::kAffine && kEach) {
        return hn::MulAdd(xhat, hn::LoadU(tag, gains + k * stride + c),
                          hn::LoadU(tag, biases + k * stride + c));
      } else if constexpr (kOutput == Output::kAffine) {
        return hn::MulAdd(xhat, hn::Set(tag, gain[k]), hn::Set(tag, bias[k]));
      } else if constexpr (kOutput == Output::kAdaptive) {
        return hn::Mul(hn::MulAdd(xhat, hn::Set(tag, neg_slope), hn::Set(tag, scale)), xhat);
      } else {
        return xhat;
      }
    };
    MapAlong<kHow, kRows>(d, args.y + r * stride, stride, args.cols, shared, mapped);
  });
}

/// Implements MapForward.
template <Output kOutput, bool kCentre, bool kEach, bool kNtStores, class D, class T>
void MapForwardOf(D d, const ColumnsForward<T>& args) {
  MapInRows<kNtStores>(d, args, &ColumnsForward<T>::y,
                       [&](auto how, const ColumnsForward<T>& call)
                           HWY_ATTR { MapForwardRows<kOutput, kCentre, kEach, how()>(d, call); });
}

// --- Backward ---

/// Inputs of kRows rows of backward from row r on.
template <Output kOutput, bool kReadX, bool kEach, int kRows, class T>
struct BackwardRowsOf {
  using C = Compute<T>;
  const T* dy;
  const T* x;
  int64_t stride;
  const C* gains = nullptr;
  C gain[kRows] = {};  // copies, because stores cannot change them
  C scale, neg_slope;

  HWY_INLINE BackwardRowsOf(const ColumnsBackward<T>& args, int64_t r)
      : dy(args.dy + r * args.stride),
        x(args.x + r * args.stride),
        stride(args.stride),
        scale(args.scale),
        neg_slope(-args.scale * args.slope) {
    if constexpr (kOutput == Output::kAffine) {
      gains = args.gain + (kEach ? r * stride : r);
      for (int k = 0; !kEach && k < kRows; ++k) gain[k] = gains[k];
    }
  }

  template <class D>
  HWY_INLINE Vec<D> Xhat(D d, int k, int64_t c, const ColumnCoefficients<D>& coefficients) const {
    if constexpr (!kReadX) return hn::Zero(d);
    return hn::MulAdd(hn::Sub(Read(d, x + k * stride + c), coefficients.mean), coefficients.rstd,
                      coefficients.offset);
  }

  template <class D>
  HWY_INLINE Vec<D> Gradient(D d, int k, int64_t c, Vec<D> dy_c, Vec<D> xhat) const {
    if constexpr (kOutput == Output::kAffine && kEach) {
      return hn::Mul(dy_c, hn::LoadU(d, gains + k * stride + c));
    } else if constexpr (kOutput == Output::kAffine) {
      return hn::Mul(dy_c, hn::Set(d, gain[k]));
    } else if constexpr (kOutput == Output::kAdaptive) {
      return hn::Mul(hn::MulAdd(xhat, hn::Set(d, neg_slope), hn::Set(d, scale)), dy_c);
    } else {
      return dy_c;
    }
  }
};

/// Computes SumBackward for kRows rows from row r on; each column's sums are loaded and stored
/// once.
template <Output kOutput, bool kReadX, bool kEach, bool kColumns, int kRows, class D, class T>
HWY_INLINE void SumBackwardRows(D d, const ColumnsBackward<T>& args, int64_t r, double* first,
                                double* second, double* dgain, double* dbias) {
  using C = Compute<T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const BackwardRowsOf<kOutput, kReadX, kEach, kRows, T> rows(args, r);
  const int64_t stride = args.stride, cols = args.cols;
  const C* means = args.mean;
  const C* rstds = args.rstd;
  const C* offsets = args.offset;
  Vec<D> dgains[kRows], dbiases[kRows];
  for (int k = 0; k < kRows; ++k) dgains[k] = dbiases[k] = hn::Zero(d);
  // Lanes of the last vector that have not been counted.
  const auto last = LastLanes(d, cols % lanes);
  const auto add = [&](int64_t c, auto whole) HWY_ATTR {
    const ColumnCoefficients<D> coefficients{hn::LoadU(d, means + c), hn::LoadU(d, rstds + c),
                                             hn::LoadU(d, offsets + c)};
    Vec<D> sum_g = hn::Zero(d), sum_g_xhat = sum_g;
    for (int k = 0; k < kRows; ++k) {
      // Prefetches the next rows, like SumGroup.
      PrefetchFar(rows.dy + (k + kRowsAtOnce) * stride + c);
      if constexpr (kReadX) PrefetchFar(rows.x + (k + kRowsAtOnce) * stride + c);
      Vec<D> dy = Read(d, rows.dy + k * stride + c), xhat = rows.Xhat(d, k, c, coefficients);
      if constexpr (!whole()) {
        dy = hn::IfThenElseZero(last, dy);
        xhat = hn::IfThenElseZero(last, xhat);
      }
      if constexpr (kColumns && kEach) {
        const int64_t at = (r + k) * stride + c;
        AddToDoubles(d, hn::Mul(dy, xhat), dgain + at);
        AddToDoubles(d, dy, dbias + at);
      } else if constexpr (kColumns) {
        dgains[k] = hn::MulAdd(dy, xhat, dgains[k]);
        dbiases[k] = hn::Add(dy, dbiases[k]);
      }
      const Vec<D> g = rows.Gradient(d, k, c, dy, xhat);
      sum_g = hn::Add(sum_g, g);
      sum_g_xhat = hn::MulAdd(g, xhat, sum_g_xhat);
    }
    AddToDoubles(d, sum_g, first + c);
    AddToDoubles(d, sum_g_xhat, second + c);
  };
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) add(c, std::true_type());
  if (c < cols) add(cols - lanes, std::false_type());
  if constexpr (kColumns && !kEach) {
    for (int k = 0; k < kRows; ++k) {
      const LaneSums<C> sums = AddLanes(d, dgains[k], dbiases[k]);
      dgain[r + k] += static_cast<double>(sums.first);
      dbias[r + k] += static_cast<double>(sums.second);
    }
  }
}

/// Implements SumBackward for cols >= lanes.
template <Output kOutput, bool kReadX, bool kEach, bool kColumns, class D, class T>
HWY_NOINLINE void SumBackwardOf(D d, const ColumnsBackward<T>& args, double* first, double* second,
                                double* dgain, double* dbias) {
  ForRowGroups<true>(args.rows, [&](auto rows, int64_t r) HWY_ATTR {
    SumBackwardRows<kOutput, kReadX, kEach, kColumns, rows()>(d, args, r, first, second, dgain,
                                                              dbias);
  });
}

template <Output kOutput, bool kReadX, bool kEach, Mapping kHow, class D, class T>
HWY_NOINLINE void MapBackwardRows(D d, const ColumnsBackward<T>& args) {
  using C = Compute<T>;
  const int64_t stride = args.stride, ahead = args.ahead;
  const C* means = args.mean;
  const C* rstds = args.rstd;
  const C* offsets = args.offset;
  const C* means_g = args.mean_g;
  const C* means_g_xhat = args.mean_g_xhat;
  ForRowGroups<kHow.in_groups>(args.rows, [&](auto constant, int64_t r) HWY_ATTR {
    constexpr int kRows = constant();
    const BackwardRowsOf<kOutput, kReadX, kEach, kRows, T> rows(args, r);
    const auto shared = [&](auto tag, int64_t c) HWY_ATTR {
      ColumnCoefficients<decltype(tag)> coefficients{
          hn::LoadU(tag, means + c), hn::LoadU(tag, rstds + c), hn::LoadU(tag, offsets + c),
          hn::LoadU(tag, means_g + c), hn::LoadU(tag, means_g_xhat + c)};
      return coefficients;
    };
    const auto mapped = [&](auto tag, int k, int64_t c, const auto& coefficients) HWY_ATTR {
      const int64_t at = k * stride + c;
      if (ahead != 0) {
        PrefetchFar(rows.dy + at + ahead);
        if constexpr (kReadX) PrefetchFar(rows.x + at + ahead);
      }
      const auto dy = Read(tag, rows.dy + at);
      const auto xhat = rows.Xhat(tag, k, c, coefficients);
      auto v = hn::Sub(rows.Gradient(tag, k, c, dy, xhat), coefficients.mean_g);
      if constexpr (kReadX) v = hn::NegMulAdd(xhat, coefficients.mean_g_xhat, v);
      return hn::Mul(v, coefficients.rstd);
    };
    MapAlong<kHow, kRows>(d, args.dx + r * stride, stride, args.cols, shared, mapped);
  });
}

/// Implements MapBackward.
template <Output kOutput, bool kReadX, bool kEach, bool kNtStores, class D, class T>
void MapBackwardOf(D d, const ColumnsBackward<T>& args) {
  MapInRows<kNtStores>(d, args, &ColumnsBackward<T>::dx,
                       [&](auto how, const ColumnsBackward<T>& call)
                           HWY_ATTR { MapBackwardRows<kOutput, kReadX, kEach, how()>(d, call); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_INL_H_
