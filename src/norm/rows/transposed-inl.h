// The narrowest rows. Transposes as many rows as a vector has lanes, so that each vector holds one
// column and work per row becomes vector arithmetic. For arithmetic in float, on targets with
// vectors of at least eight floats. Compiled once for each target, in namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_NORM_ROWS_TRANSPOSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_NORM_ROWS_TRANSPOSED_INL_H_
#undef PLANISH_SRC_NORM_ROWS_TRANSPOSED_INL_H_
#else
#define PLANISH_SRC_NORM_ROWS_TRANSPOSED_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "src/norm/rows/prefetch-inl.h"
#include "src/norm/rows/shared-inl.h"
#include "src/norm/rows/staged-inl.h"
#include "src/norm/statistics-inl.h"
#include "src/norm/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

#if HWY_MAX_BYTES >= 32 && HWY_TARGET != HWY_SCALAR

/// Vector of one column; its lanes are the rows processed at a time, 8 or 16.
using Lanes = hn::CappedTag<float, 16>;
inline constexpr int64_t kLanes = hn::MaxLanes(Lanes());

// --- Tuning constants (docs/tuning.md) ---

/// Column limits, forward and backward. For wider rows transposing costs more than it saves.
inline constexpr int64_t kTransposedColumns = 47;
inline constexpr int64_t kTransposedGradientColumns = kLanes == 16 ? 47 : 20;

/// Columns from which forward interleaves its non-temporal stores with reads. Narrower rows and
/// backward store in bursts.
inline constexpr int64_t kPacedColumns = 16;

// --- End of tuning constants ---

/// Columns that are transposed at a time.
inline constexpr int64_t kBlock = 8;

/// Transposes between vectors with eight columns of row i (and above them of row i + 8) and vectors
/// with one column of all rows.
template <class D>
HWY_INLINE void Transpose(D d, Vec<D> (&v)[kBlock]) {
  const hn::Repartition<double, D> pairs;
  Vec<D> u[kBlock];
  for (size_t i = 0; i < kBlock; i += 4) {
    const auto t0 = hn::BitCast(pairs, hn::InterleaveLower(d, v[i], v[i + 1]));
    const auto t1 = hn::BitCast(pairs, hn::InterleaveUpper(d, v[i], v[i + 1]));
    const auto t2 = hn::BitCast(pairs, hn::InterleaveLower(d, v[i + 2], v[i + 3]));
    const auto t3 = hn::BitCast(pairs, hn::InterleaveUpper(d, v[i + 2], v[i + 3]));
    u[i] = hn::BitCast(d, hn::InterleaveLower(pairs, t0, t2));
    u[i + 1] = hn::BitCast(d, hn::InterleaveUpper(pairs, t0, t2));
    u[i + 2] = hn::BitCast(d, hn::InterleaveLower(pairs, t1, t3));
    u[i + 3] = hn::BitCast(d, hn::InterleaveUpper(pairs, t1, t3));
  }
  for (size_t i = 0; i < 4; ++i) {
    if constexpr (hn::MaxLanes(D()) == 8) {
      v[i] = hn::ConcatLowerLower(d, u[i + 4], u[i]);
      v[i + 4] = hn::ConcatUpperUpper(d, u[i + 4], u[i]);
    } else {
      v[i] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(u[i + 4]), u[i]);
      v[i + 4] = hn::OddEvenBlocks(u[i + 4], hn::SwapAdjacentBlocks(u[i]));
    }
  }
}

/// Loads eight elements of one row, or of two rows if the vector is that wide.
template <class D, class T>
HWY_INLINE Vec<D> TwoRows(D d, const T* lower, const T* upper) {
  if constexpr (hn::MaxLanes(D()) == 8) {
    return Read(d, lower);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, Read(half, upper), Read(half, lower));
  }
}

/// kLanes rows of input from `r` on. Uses a zero-padded copy if there are fewer rows, or if whole
/// blocks of columns would extend beyond the array.
template <class T>
class RowsIn {
 public:
  HWY_INLINE RowsIn(const T* x, int64_t stride, int64_t cols, int64_t r, int64_t end)
      : x_(x + r * stride), stride_(stride) {
    if (end - r >= kLanes + (cols < kBlock ? kBlock : 0)) [[likely]]
      return;
    stride_ = std::max(cols, kBlock);
    std::fill_n(padded_, kLanes * stride_, T{});
    for (int64_t i = 0; i < std::min(kLanes, end - r); ++i) {
      std::copy_n(x_ + i * stride, cols, padded_ + i * stride_);
    }
    x_ = padded_;
  }

  /// Loads eight columns from `c` on.
  HWY_INLINE void Read8(int64_t c, Vec<Lanes> (&v)[kBlock]) const {
    const T* x = x_ + c;
    for (int64_t i = 0; i < kBlock; ++i) {
      v[i] = TwoRows(Lanes(), x + i * stride_, x + (i + 8) * stride_);
    }
    Transpose(Lanes(), v);
  }

 private:
  const T* x_;
  int64_t stride_;
  T padded_[kLanes * kTransposedColumns];
};

/// Returns the lower (kPart = 0) or upper eight lanes.
template <size_t kPart, class D>
HWY_INLINE auto EightLanes(D d, Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 8) {
    return v;
  } else if constexpr (kPart == 0) {
    return hn::LowerHalf(hn::Half<D>(), v);
  } else {
    return hn::UpperHalf(hn::Half<D>(), v);
  }
}

/// Destination of output rows: in place; staged for non-temporal stores; or through a copy, if the
/// elements that follow must not be overwritten.
template <bool kNtStores, class T>
class RowsOut {
 public:
  /// With `in_place`, elements after these rows must still be read.
  RowsOut(T* out, int64_t stride, int64_t cols, bool in_place)
      : staged_(out),
        out_(out),
        stride_(stride),
        cols_(cols),
        overwrites_(stride == cols && !in_place) {}

  /// Starts the next `n` rows, which `more` others follow.
  HWY_INLINE void Begin(int64_t n, int64_t more) {
    n_ = n;
    direct_ = !kNtStores && (cols_ >= kBlock || (overwrites_ && more >= kBlock));
    to_ = direct_ ? out_ : kNtStores ? staged_.next() : rows_;
  }

  /// Writes columns [first, first + columns), where column c of all rows is value(c).
  template <class Value>
  HWY_INLINE void Write8(int64_t first, int64_t columns, const Value& value) {
    const Lanes d;
    Vec<Lanes> v[kBlock];
    if (columns == kBlock) [[likely]] {
      for (int64_t i = 0; i < kBlock; ++i) v[i] = value(first + i);
    } else {
      for (int64_t i = 0; i < kBlock; ++i) v[i] = hn::Zero(d);
      for (int64_t i = 0; i < columns; ++i) v[i] = value(first + i);
    }
    Transpose(d, v);
    T* to = to_ + first;
    const int64_t stride = direct_ ? stride_ : cols_;
    const hn::CappedTag<float, 8> half;
    const auto write = [&](int64_t rows, auto part) HWY_ATTR {
      for (int64_t i = 0; i < rows; ++i) {
        Write(half, EightLanes<part()>(d, v[i]),
              to + (i + static_cast<int64_t>(8 * part())) * stride);
      }
    };
    constexpr std::integral_constant<size_t, 0> kLower;
    constexpr std::integral_constant<size_t, 1> kUpper;
    if (n_ == kLanes) [[likely]] {
      write(8, kLower);
      if (kLanes > 8) write(8, kUpper);
    } else {
      write(std::min<int64_t>(8, n_), kLower);
      if (kLanes > 8) write(std::max<int64_t>(8, n_) - 8, kUpper);
    }
  }

  /// Calls Staged::StoreSome.
  HWY_INLINE void StoreSome(int64_t n) { staged_.StoreSome(n); }

  HWY_INLINE void End() {
    if constexpr (kNtStores) {
      staged_.Add(n_ * cols_);
      return;
    }
    if (!direct_) {
      for (int64_t i = 0; i < n_; ++i) std::copy_n(rows_ + i * cols_, cols_, out_ + i * stride_);
    }
    out_ += n_ * stride_;
  }

  HWY_INLINE void Finish() {
    if constexpr (kNtStores) staged_.Finish();
  }

 private:
  Staged<T> staged_;  // used only with kNtStores
  T* out_;
  T* to_ = nullptr;
  int64_t stride_, cols_, n_ = 0;
  bool overwrites_, direct_ = false;
  T rows_[(kLanes + 1) * kBlock];
};

/// Calls f(first, skip, columns) for blocks of up to eight columns from `first` on. The last block
/// overlaps the one before by its first `skip` columns.
template <class F>
HWY_INLINE void VisitBlocks(int64_t cols, F&& f) {
  if (cols < kBlock) {
    f(int64_t{0}, int64_t{0}, cols);
    return;
  }
  for (int64_t c = 0; c < cols; c += kBlock) {
    const int64_t first = std::min(c, cols - kBlock);
    f(first, c - first, kBlock);
  }
}

/// Coefficients of xhat of kLanes rows.
struct LaneCoefficients {
  Vec<Lanes> mean, rstd, offset;
};

/// Loads the saved statistics of rows [r, r + n).
template <class Args>
HWY_INLINE LaneCoefficients LoadLanes(const Args& args, int64_t r, int64_t n) {
  const Lanes d;
  // As in CoefficientsOf.
  const Vec<Lanes> rstd = PlainNan(d, LoadRows(d, args.rstd, r, n));
  return {LoadRows(d, args.mean, r, n), rstd,
          hn::Neg(hn::Mul(LoadRows(d, args.mean_lo, r, n), rstd))};
}

/// Computes and saves the statistics of rows [r, r + n), whose columns are at `x`.
/// `offset_estimate` approximates mean - origin.
template <bool kCentre, class T>
HWY_INLINE LaneCoefficients FinishLanes(const RowsForward<T>& args, int64_t r, int64_t n,
                                        const float* x, Vec<Lanes> origin,
                                        Vec<Lanes> offset_estimate) {
  const Lanes d;
  const int64_t cols = args.cols;
  const Vec<Lanes> reciprocal = hn::Set(d, 1 / static_cast<float>(cols));
  Vec<Lanes> sums[4], squares[4];
  for (int64_t i = 0; i < 4; ++i) sums[i] = squares[i] = hn::Zero(d);
  const auto add = [&](int64_t c, int64_t i) HWY_ATTR {
    Vec<Lanes> e = hn::Load(d, x + c * kLanes);
    if constexpr (kCentre) {
      e = hn::Sub(hn::Sub(e, origin), offset_estimate);
      sums[i] = hn::Add(sums[i], e);
    }
    squares[i] = hn::MulAdd(e, e, squares[i]);
  };
  int64_t c = 0;
  for (; c + 4 <= cols; c += 4) {
    for (int64_t i = 0; i < 4; ++i) add(c + i, i);
  }
  for (; c < cols; ++c) add(c, 0);
  const auto total = [&](const Vec<Lanes>(&v)[4])
                         HWY_ATTR { return hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3])); };
  Vec<Lanes> mean = hn::Zero(d), mean_lo = hn::Zero(d);
  Vec<Lanes> square = hn::Mul(total(squares), reciprocal);
  if constexpr (kCentre) {
    const Vec<Lanes> rest = hn::Mul(total(sums), reciprocal);
    const Vec<Lanes> offset = hn::Add(offset_estimate, rest);
    mean = hn::Add(origin, offset);
    mean_lo = hn::Add(hn::Sub(origin, mean), offset);
    square = hn::NegMulAdd(rest, rest, square);
  }
  using Bounds = SquareBounds<float>;
  const auto accurate =
      hn::And(hn::Ge(square, hn::Set(d, static_cast<float>(Bounds::MinSquare(args.eps)))),
              hn::Le(square, hn::Set(d, static_cast<float>(Bounds::kMax))));
  const Vec<Lanes> deviation = hn::Sqrt(hn::Add(square, hn::Set(d, static_cast<float>(args.eps))));
  const Vec<Lanes> rstd = hn::Div(hn::Set(d, 1.f), deviation);
  SaveRows(d, mean, args.mean, r, n);
  SaveRows(d, mean_lo, args.mean_lo, r, n);
  SaveRows(d, rstd, args.rstd, r, n);
  LaneCoefficients coefficients{mean, rstd, hn::Neg(hn::Mul(mean_lo, rstd))};
  const bool biased = args.recipe.deviation == Deviation::kBiased;
  if (!hn::AllTrue(d, accurate) || !biased) [[unlikely]] {
    HWY_ALIGN float is_accurate[kLanes], means[kLanes], rstds[kLanes], offsets[kLanes];
    hn::Store(hn::IfThenElseZero(accurate, hn::Set(d, 1.f)), d, is_accurate);
    hn::Store(coefficients.mean, d, means);
    hn::Store(coefficients.rstd, d, rstds);
    hn::Store(coefficients.offset, d, offsets);
    for (int64_t i = 0; i < n; ++i) {
      if (is_accurate[i] != 0 && biased) continue;
      const RowCoefficients<float> row_coefficients = TwoPassCoefficients(args, r + i);
      means[i] = row_coefficients.mean;
      rstds[i] = row_coefficients.rstd;
      offsets[i] = row_coefficients.offset;
    }
    coefficients = {hn::Load(d, means), hn::Load(d, rstds), hn::Load(d, offsets)};
  }
  return coefficients;
}

/// Computes ForwardRows for at most kTransposedColumns columns. Two passes in registers: a mean,
/// then sums about it.
template <Output kOutput, bool kCentre, bool kNtStores, class T>
HWY_NOINLINE void ForwardRowsTransposed(const RowsForward<T>& args, int64_t begin, int64_t end) {
  const Lanes d;
  const int64_t cols = args.cols;
  const Vec<Lanes> reciprocal = hn::Set(d, 1 / static_cast<float>(cols));
  const Vec<Lanes> scale = hn::Set(d, args.scale);
  const Vec<Lanes> neg_slope = hn::Set(d, -args.scale * args.slope);
  RowsOut<kNtStores, T> out(args.y + begin * args.y_stride, args.y_stride, cols, args.y == args.x);
  HWY_ALIGN float x[kTransposedColumns * kLanes];
  for (int64_t r = begin; r < end; r += kLanes) {
    const int64_t n = std::min(kLanes, end - r);
    if constexpr (kNtStores) PrefetchFarAhead(args.x + r * args.x_stride, kLanes * cols);
    const RowsIn<T> in(args.x, args.x_stride, cols, r, end);
    Vec<Lanes> origin = hn::Zero(d), sum0 = hn::Zero(d), sum1 = hn::Zero(d);
    VisitBlocks(cols, [&](int64_t first, int64_t skip, int64_t columns) HWY_ATTR {
      Vec<Lanes> v[kBlock];
      in.Read8(first, v);
      if (kNtStores && cols >= kPacedColumns) out.StoreSome(kBlock * kLanes);
      for (int64_t i = 0; i < kBlock; ++i) hn::Store(v[i], d, x + (first + i) * kLanes);
      if constexpr (!kCentre) return;
      if (first == 0) origin = v[0];
      if (skip == 0 && columns == kBlock) [[likely]] {
        for (int64_t i = 0; i < kBlock; i += 2) {
          sum0 = hn::Add(sum0, hn::Sub(v[i], origin));
          sum1 = hn::Add(sum1, hn::Sub(v[i + 1], origin));
        }
      } else {
        for (int64_t c = first + skip; c < first + columns; ++c) {
          sum0 = hn::Add(sum0, hn::Sub(hn::Load(d, x + c * kLanes), origin));
        }
      }
    });
    LaneCoefficients coefficients;
    if (args.pass != Pass::kResults) {
      coefficients =
          FinishLanes<kCentre>(args, r, n, x, origin, hn::Mul(hn::Add(sum0, sum1), reciprocal));
    }
    if (args.pass == Pass::kStatistics) continue;
    if (args.revise) (*args.revise)(r, r + n);
    if (args.revise || args.pass == Pass::kResults) coefficients = LoadLanes(args, r, n);
    const auto normalize = [&](int64_t c) HWY_ATTR {
      Vec<Lanes> xhat = hn::Load(d, x + c * kLanes);
      xhat = kCentre ? hn::MulAdd(hn::Sub(xhat, coefficients.mean), coefficients.rstd,
                                  coefficients.offset)
                     : hn::Mul(xhat, coefficients.rstd);
      if constexpr (kOutput == Output::kAffine) {
        return hn::MulAdd(xhat, hn::Set(d, args.gain[c]), hn::Set(d, args.bias[c]));
      } else if constexpr (kOutput == Output::kAdaptive) {
        return hn::Mul(hn::MulAdd(xhat, neg_slope, scale), xhat);
      } else {
        return xhat;
      }
    };
    out.Begin(n, end - r - n);
    VisitBlocks(cols, [&](int64_t first, int64_t, int64_t columns)
                          HWY_ATTR { out.Write8(first, columns, normalize); });
    out.End();
  }
  out.Finish();
  FinishStores<kNtStores>();
}

/// Computes BackwardRows with dx for at most kTransposedColumns columns.
template <Output kOutput, bool kReadX, bool kColumns, bool kNtStores, class T>
HWY_NOINLINE void BackwardRowsTransposed(const RowsBackward<T>& args, int64_t begin, int64_t end,
                                         float* dgain, float* dbias) {
  const Lanes d;
  const int64_t cols = args.cols;
  const double reciprocal = 1 / static_cast<double>(cols);
  const Vec<Lanes> inverse = hn::Set(d, 1 / static_cast<float>(cols));
  const Vec<Lanes> scale = hn::Set(d, args.scale);
  const Vec<Lanes> neg_slope = hn::Set(d, -args.scale * args.slope);
  const bool usual = args.recipe.deviation == Deviation::kBiased && args.factors == nullptr;
  RowsOut<kNtStores, T> out(args.dx + begin * args.dx_stride, args.dx_stride, cols,
                            args.dx == args.dy || args.dx == args.x);
  HWY_ALIGN float gradients[kTransposedColumns * kLanes];
  HWY_ALIGN float xhats[kTransposedColumns * kLanes];
  HWY_ALIGN float gain_sums[kTransposedColumns * kLanes];
  HWY_ALIGN float bias_sums[kTransposedColumns * kLanes];
  if constexpr (kColumns) {
    std::fill_n(gain_sums, cols * kLanes, 0.f);
    std::fill_n(bias_sums, cols * kLanes, 0.f);
  }
  for (int64_t r = begin; r < end; r += kLanes) {
    const int64_t n = std::min(kLanes, end - r);
    if constexpr (kNtStores) {
      PrefetchFarAhead(args.dy + r * args.dy_stride, kLanes * cols);
      if constexpr (kReadX) PrefetchFarAhead(args.x + r * args.x_stride, kLanes * cols);
    }
    const RowsIn<T> dy(args.dy, args.dy_stride, cols, r, end);
    const RowsIn<T> x(args.x, kReadX ? args.x_stride : 0, cols, r, kReadX ? end : r);
    const LaneCoefficients coefficients = LoadLanes(args, r, n);
    Vec<Lanes> sum_g[2], sum_g_xhat[2];
    for (int64_t i = 0; i < 2; ++i) sum_g[i] = sum_g_xhat[i] = hn::Zero(d);
    VisitBlocks(cols, [&](int64_t first, int64_t skip, int64_t columns) HWY_ATTR {
      Vec<Lanes> v[kBlock], u[kBlock];
      dy.Read8(first, v);
      if constexpr (kReadX) x.Read8(first, u);
      const auto add = [&](int64_t i) HWY_ATTR {
        const int64_t at = (first + i) * kLanes;
        Vec<Lanes> g = v[i], xhat = hn::Zero(d);
        if constexpr (kReadX)
          xhat =
              hn::MulAdd(hn::Sub(u[i], coefficients.mean), coefficients.rstd, coefficients.offset);
        if constexpr (kColumns) {
          // Missing rows have dy = 0, mean = 0 and rstd = 0.
          hn::Store(hn::MulAdd(g, xhat, hn::Load(d, gain_sums + at)), d, gain_sums + at);
          hn::Store(hn::Add(g, hn::Load(d, bias_sums + at)), d, bias_sums + at);
        }
        if constexpr (kOutput == Output::kAffine) g = hn::Mul(g, hn::Set(d, args.gain[first + i]));
        if constexpr (kOutput == Output::kAdaptive) {
          g = hn::Mul(hn::MulAdd(xhat, neg_slope, scale), g);
        }
        hn::Store(g, d, gradients + at);
        sum_g[i % 2] = hn::Add(sum_g[i % 2], g);
        if constexpr (kReadX) {
          hn::Store(xhat, d, xhats + at);
          sum_g_xhat[i % 2] = hn::MulAdd(g, xhat, sum_g_xhat[i % 2]);
        }
      };
      if (skip == 0 && columns == kBlock) [[likely]] {
        for (int64_t i = 0; i < kBlock; ++i) add(i);
      } else {
        for (int64_t i = skip; i < columns; ++i) add(i);
      }
    });
    const Vec<Lanes> all_g = hn::Add(sum_g[0], sum_g[1]);
    const Vec<Lanes> all_g_xhat = hn::Add(sum_g_xhat[0], sum_g_xhat[1]);
    Vec<Lanes> mean_g = args.recipe.via_mean ? hn::Mul(all_g, inverse) : hn::Zero(d);
    Vec<Lanes> mean_g_xhat = args.recipe.via_scale ? hn::Mul(all_g_xhat, inverse) : hn::Zero(d);
    if (!usual) [[unlikely]] {
      HWY_ALIGN float sums[2][kLanes], rstds[kLanes];
      hn::Store(all_g, d, sums[0]);
      hn::Store(all_g_xhat, d, sums[1]);
      hn::Store(coefficients.rstd, d, rstds);
      for (int64_t i = 0; i < n; ++i) {
        const auto full = FinishGradient(args, r + i, RowCoefficients<float>{.rstd = rstds[i]},
                                         RowSums{sums[0][i], sums[1][i]}, reciprocal);
        sums[0][i] = full.mean_g;
        sums[1][i] = full.mean_g_xhat;
      }
      mean_g = hn::Load(d, sums[0]);
      mean_g_xhat = hn::Load(d, sums[1]);
    }
    const auto gradient = [&](int64_t c) HWY_ATTR {
      Vec<Lanes> v = hn::Sub(hn::Load(d, gradients + c * kLanes), mean_g);
      if constexpr (kReadX) v = hn::NegMulAdd(hn::Load(d, xhats + c * kLanes), mean_g_xhat, v);
      return hn::Mul(v, coefficients.rstd);
    };
    out.Begin(n, end - r - n);
    VisitBlocks(cols, [&](int64_t first, int64_t, int64_t columns)
                          HWY_ATTR { out.Write8(first, columns, gradient); });
    out.End();
  }
  out.Finish();
  if constexpr (kColumns) {
    for (int64_t c = 0; c < cols; ++c) {
      dgain[c] += Sum(d, hn::Load(d, gain_sums + c * kLanes));
      dbias[c] += Sum(d, hn::Load(d, bias_sums + c * kLanes));
    }
  }
  FinishStores<kNtStores>();
}

#endif  // HWY_MAX_BYTES >= 32

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_NORM_ROWS_TRANSPOSED_INL_H_
