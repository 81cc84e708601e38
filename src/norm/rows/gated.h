#ifndef PLANISH_SRC_NORM_ROWS_GATED_H_
#define PLANISH_SRC_NORM_ROWS_GATED_H_

#include <algorithm>
#include <cstdint>

#include "src/base/aligned.h"
#include "src/norm/rows/gate.h"
#include "src/norm/rows/quantize.h"
#include "src/norm/rows/rows.h"

// Gated norms of rows, norms that round before the product with the gain, and quantized outputs:
// the kernels of gate.h and quantize.h before and after those of rows.h, in Compute<T>. What passes
// between the kernels is scratch for a few rows, in the L2 cache.
namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Bytes of a scratch array. Two of them stay in the L2 cache with the rows that they belong to.
inline constexpr int64_t kGatedBytes = int64_t{1} << 16;

/// Bytes of a scratch array of a call that quantizes, which reads it twice more: in the L1 cache.
inline constexpr int64_t kQuantizedBytes = int64_t{1} << 14;

// --- End of tuning constants ---

/// Returns the number of rows that are processed together.
template <class T>
int64_t GatedRows(int64_t cols, int64_t scratch_bytes = kGatedBytes) {
  return std::max<int64_t>(1, scratch_bytes / static_cast<int64_t>(sizeof(Compute<T>)) / cols);
}

/// Returns whether a call needs the kernels of gate.h or quantize.h.
template <class T>
bool IsGated(const RowsForward<T>& args) {
  return args.gate != nullptr || args.cast_gain != nullptr || args.quantized != nullptr;
}
template <class T>
bool IsGated(const RowsBackward<T>& args) {
  return args.gate != nullptr;
}

/// Calls kernel(row, first, n) for columns [first, last) of rows [begin, end): once for all of them
/// if `contiguous`, else for each row.
template <class Kernel>
void ForEachRun(bool contiguous, int64_t begin, int64_t end, int64_t first, int64_t last,
                const Kernel& kernel) {
  if (contiguous) {
    kernel(begin, first, (end - begin) * (last - first));
  } else {
    for (int64_t r = begin; r < end; ++r) kernel(r, first, last - first);
  }
}

/// Returns the elements of GatedForward's scratch for `rows` rows.
template <class T>
int64_t GatedForwardScratch(const RowsForward<T>& args, int64_t rows) {
  return (args.quantized == nullptr ? 1 : 2) * rows * args.cols;
}

/// Forward over rows [r, r + rows) of a call, in four steps: Input, the norm, Output, and Quantize.
template <class T>
class GatedForward {
 public:
  using C = Compute<T>;

  /// `x` points to the first row, and can be the call's `sum`; `v` is scratch.
  GatedForward(const RowsForward<T>& args, int64_t r, int64_t rows, const T* x, int64_t x_stride,
               C* v)
      : args_(args), r_(r), rows_(rows), x_(x), x_stride_(x_stride), v_(v) {}

  /// Computes columns [first, last) of the norm's input, unless that is x.
  void Input(int64_t first, int64_t last) const {
    if (!HasInput()) return;
    const T* gate = args_.gate_before_norm ? args_.gate : nullptr;
    const int64_t cols = args_.cols;
    const bool contiguous =
        IsWhole(first, last) && x_stride_ == cols && (!gate || args_.gate_stride == cols);
    ForEachRun(contiguous, 0, rows_, first, last, [&](int64_t i, int64_t c, int64_t n) {
      GateInput<T>(x_ + i * x_stride_ + c, gate ? gate + (r_ + i) * args_.gate_stride + c : nullptr,
                   n, v_ + i * cols + c);
    });
  }

  /// Returns the norm's call, whose rows begin at 0.
  RowsForward<C> Norm() const {
    RowsForward<C> norm;
    static_cast<NormSettings<C>&>(norm) = args_;
    norm.rows = rows_;
    norm.cols = args_.cols;
    norm.gain = args_.gain;
    norm.bias = args_.bias;
    norm.mean = args_.mean ? args_.mean + r_ : nullptr;
    norm.mean_lo = args_.mean_lo ? args_.mean_lo + r_ : nullptr;
    norm.rstd = args_.rstd ? args_.rstd + r_ : nullptr;
    norm.x = v_;
    norm.x_stride = norm.y_stride = args_.cols;
    norm.y = v_;
    if constexpr (!IsHalf<T>) {
      if (!HasInput()) norm.x = x_, norm.x_stride = x_stride_;
      if (!HasOutput() && !args_.quantized) {
        norm.y = args_.y + r_ * args_.y_stride;
        norm.y_stride = args_.y_stride;
        norm.use_nt_stores = args_.use_nt_stores;
        norm.prefetch_output = args_.prefetch_output;
      }
    }
    return norm;
  }

  /// Computes columns [first, last) of y, unless the norm wrote them.
  void Output(int64_t first, int64_t last, bool use_nt_stores) const {
    if (!HasOutput()) return;
    const T* gate = args_.gate_before_norm ? nullptr : args_.gate;
    const int64_t cols = args_.cols;
    const bool quantized = args_.quantized != nullptr;
    const bool contiguous = IsWhole(first, last) && (quantized || args_.y_stride == cols) &&
                            (!gate || args_.gate_stride == cols) && !args_.cast_gain;
    ForEachRun(contiguous, 0, rows_, first, last, [&](int64_t i, int64_t c, int64_t n) {
      GateOutput<T>({.v = v_ + i * cols + c,
                     .gain = args_.cast_gain ? args_.cast_gain + c : nullptr,
                     .bias = args_.cast_gain ? args_.cast_bias + c : nullptr,
                     .gate = gate ? gate + (r_ + i) * args_.gate_stride + c : nullptr,
                     .y = quantized ? nullptr : args_.y + (r_ + i) * args_.y_stride + c,
                     .wide = quantized ? Wide() + i * cols + c : nullptr,
                     .use_nt_stores = use_nt_stores},
                    n);
    });
  }

  /// Quantizes y, if the call does, and stores it if it is wanted, too.
  void Quantize() const {
    if (args_.quantized == nullptr) return;
    for (int64_t i = 0; i < rows_; ++i) {
      QuantizeColumns(i, MaxAbsOf(i, 0, args_.cols), 0, args_.cols);
    }
  }

  /// Parts of Quantize for columns [first, last) of one row: the maximum, and the rest. Its result
  /// for the first column includes row_scale.
  C MaxAbsOf(int64_t i, int64_t first, int64_t last) const {
    return MaxAbs(Y(i) + first, last - first);
  }
  void QuantizeColumns(int64_t i, C max, int64_t first, int64_t last) const {
    const auto [scale, factor] = RowScaleOf(max);
    if (first == 0) args_.row_scale[r_ + i] = scale;
    internal::Quantize(Y(i) + first, last - first, factor,
                       args_.quantized + (r_ + i) * args_.quantized_stride + first);
    if (args_.y == nullptr) return;
    GateOutput<T>({.v = Y(i) + first,
                   .gain = nullptr,
                   .bias = nullptr,
                   .gate = nullptr,
                   .y = args_.y + (r_ + i) * args_.y_stride + first,
                   .wide = nullptr,
                   .use_nt_stores = false},
                  last - first);
  }

 private:
  bool HasInput() const { return IsHalf<T> || (args_.gate && args_.gate_before_norm); }
  bool HasOutput() const {
    const bool after = args_.gate && !args_.gate_before_norm;
    return after || (args_.quantized ? args_.cast_gain != nullptr : IsHalf<T>);
  }
  /// The second array of the scratch, and the rows that Quantize reads.
  C* Wide() const { return v_ + rows_ * args_.cols; }
  const C* Y(int64_t i) const { return (HasOutput() ? Wide() : v_) + i * args_.cols; }
  bool IsWhole(int64_t first, int64_t last) const { return first == 0 && last == args_.cols; }

  const RowsForward<T>& args_;
  int64_t r_, rows_;
  const T* x_;
  int64_t x_stride_;
  C* v_;
};

/// Scratch of GatedBackward, [rows, cols] each.
template <class C>
struct GatedScratch {
  /// Without rows, both arrays are null.
  GatedScratch(int64_t rows, int64_t cols) {
    if (rows == 0) return;
    x = MakeAligned<C>(rows * cols);
    g = MakeAligned<C>(rows * cols);
  }
  AlignedArray<C> x;  ///< the norm's input
  AlignedArray<C> g;  ///< the gradient of the norm's output, then of its input
};

/// Backward over rows [r, r + rows) of a call with a gate, in three steps: Input, the norm, and
/// Output. dsum is not added.
template <class T>
class GatedBackward {
 public:
  using C = Compute<T>;

  GatedBackward(const RowsBackward<T>& args, int64_t r, int64_t rows,
                const GatedScratch<C>& scratch)
      : args_(args), r_(r), rows_(rows), x_(scratch.x.get()), g_(scratch.g.get()) {}

  /// Computes the norm's input and the gradient of its output in columns [first, last) of rows
  /// [r + begin, r + end), r being the block's first row. If the gate follows the norm, also dgate.
  void Input(int64_t first, int64_t last, int64_t begin, int64_t end) const {
    const int64_t cols = args_.cols;
    const bool whole = first == 0 && last == cols;
    if (args_.gate_before_norm) {
      const bool contiguous = whole && args_.x_stride == cols && args_.gate_stride == cols;
      ForEachRun(contiguous, begin, end, first, last, [&](int64_t i, int64_t c, int64_t n) {
        GateInput<T>(X(i) + c, Gate(i) + c, n, x_ + i * cols + c);
      });
      if constexpr (IsHalf<T>) {
        ForEachRun(whole && args_.dy_stride == cols, begin, end, first, last,
                   [&](int64_t i, int64_t c, int64_t n) {
                     GateInput<T>(Dy(i) + c, nullptr, n, g_ + i * cols + c);
                   });
      }
      return;
    }
    ForEachRun(false, begin, end, first, last, [&](int64_t i, int64_t c, int64_t n) {
      GateAfterGradient<T>({.dy = Dy(i) + c,
                            .x = X(i) + c,
                            .gate = Gate(i) + c,
                            .gain = args_.gain + c,
                            .bias = args_.bias + c,
                            .mean = args_.mean ? args_.mean[r_ + i] : C{0},
                            .mean_lo = args_.mean_lo ? args_.mean_lo[r_ + i] : C{0},
                            .rstd = args_.rstd[r_ + i],
                            .dnorm = g_ + i * cols + c,
                            .wide = IsHalf<T> ? x_ + i * cols + c : nullptr,
                            .dgate = Dgate(i, c)},
                           n);
    });
  }

  /// Returns the norm's call, whose rows begin at 0.
  RowsBackward<C> Norm() const {
    RowsBackward<C> norm;
    static_cast<NormSettings<C>&>(norm) = args_;
    const int64_t cols = args_.cols;
    norm.rows = rows_;
    norm.cols = cols;
    norm.gain = args_.gain;
    norm.mean = args_.mean ? args_.mean + r_ : nullptr;
    norm.mean_lo = args_.mean_lo ? args_.mean_lo + r_ : nullptr;
    norm.rstd = args_.rstd + r_;
    norm.dgain = args_.dgain;
    norm.dbias = args_.dbias;
    norm.x = x_;
    norm.dy = g_;
    norm.dx = args_.dx || (args_.gate_before_norm && args_.dgate) ? g_ : nullptr;
    norm.x_stride = norm.dy_stride = norm.dx_stride = cols;
    if constexpr (!IsHalf<T>) {
      if (args_.gate_before_norm) {
        norm.dy = Dy(0);
        norm.dy_stride = args_.dy_stride;
      } else {
        norm.x = X(0);
        norm.x_stride = args_.x_stride;
        norm.dx = Dx(0, 0);
        norm.dx_stride = args_.dx_stride;
        norm.use_nt_stores = args_.use_nt_stores;
        norm.prefetch_output = args_.prefetch_output;
      }
    }
    return norm;
  }

  /// Computes columns [first, last) of dx, and with the gate before the norm of dgate.
  void Output(int64_t first, int64_t last, bool use_nt_stores) const {
    const int64_t cols = args_.cols;
    const bool whole = first == 0 && last == cols;
    if (args_.gate_before_norm) {
      if (args_.dx == nullptr && args_.dgate == nullptr) return;
      const bool contiguous = whole && args_.x_stride == cols && args_.gate_stride == cols &&
                              (!args_.dx || args_.dx_stride == cols) &&
                              (!args_.dgate || args_.dgate_stride == cols);
      ForEachRun(contiguous, 0, rows_, first, last, [&](int64_t i, int64_t c, int64_t n) {
        GateBeforeGradient<T>({.du = g_ + i * cols + c,
                               .x = X(i) + c,
                               .gate = Gate(i) + c,
                               .dx = Dx(i, c),
                               .dgate = Dgate(i, c),
                               .use_nt_stores = use_nt_stores},
                              n);
      });
    } else if (IsHalf<T> && args_.dx) {
      ForEachRun(whole && args_.dx_stride == cols, 0, rows_, first, last,
                 [&](int64_t i, int64_t c, int64_t n) {
                   GateOutput<T>({.v = g_ + i * cols + c,
                                  .gain = nullptr,
                                  .bias = nullptr,
                                  .gate = nullptr,
                                  .y = Dx(i, c),
                                  .wide = nullptr,
                                  .use_nt_stores = use_nt_stores},
                                 n);
                 });
    }
  }

 private:
  const T* Dy(int64_t i) const { return args_.dy + (r_ + i) * args_.dy_stride; }
  const T* X(int64_t i) const { return args_.x + (r_ + i) * args_.x_stride; }
  const T* Gate(int64_t i) const { return args_.gate + (r_ + i) * args_.gate_stride; }
  T* Dx(int64_t i, int64_t c) const {
    return args_.dx ? args_.dx + (r_ + i) * args_.dx_stride + c : nullptr;
  }
  T* Dgate(int64_t i, int64_t c) const {
    return args_.dgate ? args_.dgate + (r_ + i) * args_.dgate_stride + c : nullptr;
  }

  const RowsBackward<T>& args_;
  int64_t r_, rows_;
  C *x_, *g_;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ROWS_GATED_H_
