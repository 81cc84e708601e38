// The arithmetic of norms down columns. Compiled once for each target, in the namespace
// HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_CHANNEL_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_CHANNEL_NORM_INL_H_
#undef PLANISH_SRC_NORM_CHANNEL_NORM_INL_H_
#else
#define PLANISH_SRC_NORM_CHANNEL_NORM_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "src/norm/channel_norm_kernels.h"
#include "src/norm/columns-inl.h"
#include "src/norm/rows-inl.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {

/// Calls f(tag, c) so that its vectors cover the columns [0, cols): vectors of one lane at the end.
template <class D, class F>
HWY_INLINE void ForColumns(D d, int64_t cols, const F& f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= cols; c += lanes) f(d, c);
  for (const OneLane<D> one; c < cols; ++c) f(one, c);
}

/// out[c] = mapped(tag, c), c < cols, where `out` may be what is mapped.
template <bool kStream, class D, class T, class F>
HWY_INLINE void MapAlong(D d, T* out, int64_t cols, const F& mapped) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const OneLane<D> one;
  int64_t c = 0;
  if constexpr (kStream) {
    const int64_t lead = std::min(cols, RowLayout<true, D, T>(d, out, cols).lead);
    for (; c < lead; ++c) Write(one, mapped(one, c), out + c);
  } else if (cols >= lanes) {
    // The vector at the end overlaps the one before: computed first.
    const Vec<D> last = mapped(d, cols - lanes);
    for (; c + lanes <= cols; c += lanes) Write(d, mapped(d, c), out + c);
    if (c < cols) Write(d, last, out + cols - lanes);
    return;
  }
  for (; c + lanes <= cols; c += lanes) Put<kStream>(d, mapped(d, c), out + c);
  for (; c < cols; ++c) Write(one, mapped(one, c), out + c);
}

// --- Moments ---

/// ShiftColumns.
template <class D, class T>
void ShiftColumnsWith(D d, const T* x, int64_t stride, int64_t rows, int64_t cols,
                      Compute<T>* shift) {
  const auto at = [&](int64_t i) { return x + (rows - 1) * i / 7 * stride; };  // 0 to 7
  ForColumns(d, cols, [&](auto tag, int64_t c) HWY_ATTR {
    // Equal numbers are doubled, which is exact.
    const auto two = [&](int64_t i) HWY_ATTR {
      return hn::Add(Read(tag, at(i) + c), Read(tag, at(i + 4) + c));
    };
    const auto sum = hn::Add(hn::Add(two(0), two(2)), hn::Add(two(1), two(3)));
    hn::StoreU(hn::Mul(sum, hn::Set(tag, Compute<T>{0.125})), tag, shift + c);
  });
}

/// FinishColumns: what MomentsOf, ReciprocalDeviation and SaveMoments do, for vectors of columns.
template <class T>
bool FinishColumnsOf(const Recipe& recipe, double eps, int64_t count, int64_t cols,
                     const Compute<T>* shift, const double* first, const double* second,
                     const ColumnMoments<Compute<T>>& moments, bool* careful) {
  using C = Compute<T>;
  constexpr double kMost = std::is_same_v<C, double> ? 1e300 : 1e37;
  constexpr double kLeast = std::is_same_v<C, double> ? 1e-280 : 1e-30;
  const double least = eps >= 1e10 * kLeast ? 0 : kLeast, n = static_cast<double>(count);
  const bool plus_eps = recipe.deviation == Deviation::kUnbiasedPlusEps;
  const hn::ScalableTag<double> wide;
  constexpr int64_t kAtOnce = 64;
  bool any = false;
  for (int64_t begin = 0; begin < cols; begin += kAtOnce) {
    const int64_t size = std::min(kAtOnce, cols - begin);
    HWY_ALIGN double offsets[kAtOnce], rstds[kAtOnce], serves[kAtOnce];
    ForColumns(wide, size, [&](auto d, int64_t c) HWY_ATTR {
      const auto divisor = hn::Set(d, n), one = hn::Set(d, 1.0);
      const auto square = hn::Div(hn::LoadU(d, second + begin + c), divisor);
      auto offset = hn::Zero(d);
      if (recipe.centre) offset = hn::Div(hn::LoadU(d, first + begin + c), divisor);
      const auto var = hn::Sub(square, hn::Mul(offset, offset));
      auto serve = hn::Ge(var, hn::Mul(square, hn::Set(d, 0.25)));
      serve = hn::And(serve, hn::Le(square, hn::Set(d, kMost)));
      serve = hn::And(serve, hn::Ge(square, hn::Set(d, least)));
      auto deviation = hn::Sqrt(hn::Add(var, hn::Set(d, eps)));
      if (plus_eps) {
        deviation = hn::Add(hn::Sqrt(hn::Mul(var, hn::Set(d, n / (n - 1)))), hn::Set(d, eps));
      }
      hn::StoreU(offset, d, offsets + c);
      hn::StoreU(hn::Div(one, deviation), d, rstds + c);
      hn::StoreU(hn::IfThenElseZero(serve, one), d, serves + c);
    });
    for (int64_t i = 0; i < size; ++i) {
      const int64_t c = begin + i;
      const double about = recipe.centre ? static_cast<double>(shift[c]) : 0.0;
      const C mean = static_cast<C>(about + offsets[i]);
      const C mean_lo = static_cast<C>((about - static_cast<double>(mean)) + offsets[i]);
      const C rstd = static_cast<C>(rstds[i]);
      moments.mean[c] = mean;
      moments.mean_lo[c] = mean_lo;
      moments.rstd[c] = rstd;
      moments.offset[c] = -mean_lo * rstd;
      careful[c] = serves[i] == 0;
      any |= careful[c];
    }
  }
  return any;
}

// --- Forward ---

/// MapForward.
template <Output kOutput, bool kCentre, bool kEach, bool kStream, class D, class T>
HWY_NOINLINE void MapForwardOf(D d, const ColumnsForward<T>& args) {
  using C = Compute<T>;
  const C neg_slope = -args.scale * args.slope, scale = args.scale;
  for (int64_t r = 0; r < args.rows; ++r) {
    const T* x = args.x + r * args.stride;
    const C* gains = nullptr;
    const C* biases = nullptr;
    C gain{}, bias{};  // copies, which stores do not change
    if constexpr (kOutput == Output::kAffine) {
      gains = args.gain + (kEach ? r * args.stride : r);
      biases = args.bias + (kEach ? r * args.stride : r);
      gain = *gains;
      bias = *biases;
    }
    MapAlong<kStream>(d, args.y + r * args.stride, args.cols, [&](auto tag, int64_t c) HWY_ATTR {
      auto xhat = Read(tag, x + c);
      const auto rstd = hn::LoadU(tag, args.rstd + c);
      if constexpr (kCentre) {
        xhat = hn::MulAdd(hn::Sub(xhat, hn::LoadU(tag, args.mean + c)), rstd,
                          hn::LoadU(tag, args.offset + c));
      } else {
        xhat = hn::Mul(xhat, rstd);
      }
      if constexpr (kOutput == Output::kAffine && kEach) {
        return hn::MulAdd(xhat, hn::LoadU(tag, gains + c), hn::LoadU(tag, biases + c));
      } else if constexpr (kOutput == Output::kAffine) {
        return hn::MulAdd(xhat, hn::Set(tag, gain), hn::Set(tag, bias));
      } else if constexpr (kOutput == Output::kAdaptive) {
        return hn::Mul(hn::MulAdd(xhat, hn::Set(tag, neg_slope), hn::Set(tag, scale)), xhat);
      } else {
        return xhat;
      }
    });
  }
  FinishStores<kStream>();
}

// --- Backward ---

/// What a row of backward is made of, from some row on.
template <Output kOutput, bool kReadX, bool kEach, class T>
struct BackwardRow {
  using C = Compute<T>;
  const ColumnsBackward<T>& args;
  const T* dy;
  const T* x;
  const C* gains = nullptr;
  C gain{};  // a copy, which stores do not change
  C scale, neg_slope;

  HWY_INLINE BackwardRow(const ColumnsBackward<T>& args_, int64_t r)
      : args(args_),
        dy(args.dy + r * args.stride),
        x(args.x + r * args.stride),
        scale(args.scale),
        neg_slope(-args.scale * args.slope) {
    if constexpr (kOutput == Output::kAffine) {
      gains = args.gain + (kEach ? r * args.stride : r);
      gain = *gains;
    }
  }

  template <class D>
  HWY_INLINE Vec<D> Xhat(D d, int64_t c) const {
    if constexpr (!kReadX) return hn::Zero(d);
    return hn::MulAdd(hn::Sub(Read(d, x + c), hn::LoadU(d, args.mean + c)),
                      hn::LoadU(d, args.rstd + c), hn::LoadU(d, args.offset + c));
  }

  template <class D>
  HWY_INLINE Vec<D> Gradient(D d, int64_t c, Vec<D> dy_c, Vec<D> xhat) const {
    if constexpr (kOutput == Output::kAffine && kEach) {
      return hn::Mul(dy_c, hn::LoadU(d, gains + c));
    } else if constexpr (kOutput == Output::kAffine) {
      return hn::Mul(dy_c, hn::Set(d, gain));
    } else if constexpr (kOutput == Output::kAdaptive) {
      return hn::Mul(hn::MulAdd(xhat, hn::Set(d, neg_slope), hn::Set(d, scale)), dy_c);
    } else {
      return dy_c;
    }
  }
};

/// SumBackward of row r and, with kPair, of the next: each column's sums are loaded and stored once
/// for both.
template <Output kOutput, bool kReadX, bool kEach, bool kColumns, bool kPair, class D, class T>
HWY_INLINE void SumBackwardRows(D d, const ColumnsBackward<T>& args, int64_t r, double* first,
                                double* second, double* dgain, double* dbias) {
  using Row = BackwardRow<kOutput, kReadX, kEach, T>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const Row row0(args, r), row1(args, kPair ? r + 1 : r);
  Vec<D> dgain0 = hn::Zero(d), dgain1 = dgain0, dbias0 = dgain0, dbias1 = dgain0;
  // The lanes of the vector that ends with the row that have not been counted.
  const auto last = LastLanes(d, args.cols % lanes);
  const auto add_row = [&](const Row& row, int64_t at, int64_t c, auto whole, Vec<D>& sum_g,
                           Vec<D>& sum_g_xhat, Vec<D>& row_dgain, Vec<D>& row_dbias) HWY_ATTR {
    Vec<D> dy = Read(d, row.dy + c), xhat = row.Xhat(d, c);
    if constexpr (!whole()) {
      dy = hn::IfThenElseZero(last, dy);
      xhat = hn::IfThenElseZero(last, xhat);
    }
    if constexpr (kColumns && kEach) {
      AddToDoubles(d, hn::Mul(dy, xhat), dgain + at * args.stride + c);
      AddToDoubles(d, dy, dbias + at * args.stride + c);
    } else if constexpr (kColumns) {
      row_dgain = hn::MulAdd(dy, xhat, row_dgain);
      row_dbias = hn::Add(dy, row_dbias);
    }
    const Vec<D> g = row.Gradient(d, c, dy, xhat);
    sum_g = hn::Add(sum_g, g);
    sum_g_xhat = hn::MulAdd(g, xhat, sum_g_xhat);
  };
  const auto add = [&](int64_t c, auto whole) HWY_ATTR {
    Vec<D> sum_g = hn::Zero(d), sum_g_xhat = sum_g;
    add_row(row0, r, c, whole, sum_g, sum_g_xhat, dgain0, dbias0);
    if constexpr (kPair) add_row(row1, r + 1, c, whole, sum_g, sum_g_xhat, dgain1, dbias1);
    AddToDoubles(d, sum_g, first + c);
    AddToDoubles(d, sum_g_xhat, second + c);
  };
  int64_t c = 0;
  for (; c + lanes <= args.cols; c += lanes) add(c, std::true_type());
  if (c < args.cols) add(args.cols - lanes, std::false_type());
  if constexpr (kColumns && !kEach) {
    dgain[r] += static_cast<double>(Sum(d, dgain0));
    dbias[r] += static_cast<double>(Sum(d, dbias0));
    if constexpr (kPair) {
      dgain[r + 1] += static_cast<double>(Sum(d, dgain1));
      dbias[r + 1] += static_cast<double>(Sum(d, dbias1));
    }
  }
}

/// SumBackward, for cols >= lanes.
template <Output kOutput, bool kReadX, bool kEach, bool kColumns, class D, class T>
HWY_NOINLINE void SumBackwardOf(D d, const ColumnsBackward<T>& args, double* first, double* second,
                                double* dgain, double* dbias) {
  int64_t r = 0;
  for (; r + 2 <= args.rows; r += 2) {
    SumBackwardRows<kOutput, kReadX, kEach, kColumns, true>(d, args, r, first, second, dgain,
                                                            dbias);
  }
  if (r < args.rows) {
    SumBackwardRows<kOutput, kReadX, kEach, kColumns, false>(d, args, r, first, second, dgain,
                                                             dbias);
  }
}

/// MapBackward.
template <Output kOutput, bool kReadX, bool kEach, bool kStream, class D, class T>
HWY_NOINLINE void MapBackwardOf(D d, const ColumnsBackward<T>& args) {
  for (int64_t r = 0; r < args.rows; ++r) {
    const BackwardRow<kOutput, kReadX, kEach, T> row(args, r);
    MapAlong<kStream>(d, args.dx + r * args.stride, args.cols, [&](auto tag, int64_t c) HWY_ATTR {
      const auto dy = Read(tag, row.dy + c);
      const auto xhat = row.Xhat(tag, c);
      auto v = hn::Sub(row.Gradient(tag, c, dy, xhat), hn::LoadU(tag, args.mean_g + c));
      if constexpr (kReadX) v = hn::NegMulAdd(xhat, hn::LoadU(tag, args.mean_g_xhat + c), v);
      return hn::Mul(v, hn::LoadU(tag, args.rstd + c));
    });
  }
  FinishStores<kStream>();
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_CHANNEL_NORM_INL_H_
