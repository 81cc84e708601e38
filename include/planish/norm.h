#ifndef PLANISH_NORM_H_
#define PLANISH_NORM_H_

#include <cstdint>

#include "planish/error.h"
#include "planish/parallel.h"
#include "planish/types.h"
#include "planish/version.h"

// Row normalization. Every norm maps a row x of `cols` elements to
//   xhat = (x - mean) * rstd,   rstd = 1 / sqrt(var + eps),   var = mean((x - mean)^2)
// and computes the output y from xhat. docs/math.md derives the equations.
//
// Matrices are row-major: element (r, c) of a [rows, cols] matrix is at r * stride + c; a stride of
// 0 means `cols`. Arguments are plain structs, filled by name. core.h has the contract on
// lifetime, alignment, aliasing, concurrency and exceptions.
//
// Example:
//   const std::vector<float> x = {1, 2, 3, 4, 5, 9};
//   std::vector<float> y(6);
//   planish::NormForward<float>(planish::Norm::kLayer,
//                               {.rows = 2, .cols = 3, .x = x.data(), .y = y.data()},
//                               {.eps = 1e-6});
//   for (const float value : y) std::printf("%.2f ", value);
//   // prints -1.22 0.00 1.22 -0.93 -0.46 1.39
namespace planish {
inline namespace PLANISH_API {

/// Selects the norm. The equation of each enumerator defines y.
enum class Norm : uint8_t {
  /// LayerNorm (Ba, Kiros & Hinton 2016, Eq. 3): y = gain * xhat + bias.
  kLayer,
  /// LayerNorm-simple (Xu et al. 2019, section 3.1): y = xhat. Like all norms below except kRms, it
  /// takes no gain and no bias.
  kLayerSimple,
  /// DetachNorm (Xu et al. 2019, Eq. 4): y = xhat. The backward pass treats mean and deviation as
  /// constants.
  kDetach,
  /// DetachNorm of the mean only (Xu et al. 2019, Table 3). The deviation is differentiated.
  kDetachMean,
  /// DetachNorm of the deviation only (Xu et al. 2019, Table 3, "detach variance").
  kDetachDeviation,
  /// AdaNorm (Xu et al. 2019, Eq. 9): y = scale * (1 - slope * xhat) * xhat. The backward pass
  /// treats the factor scale * (1 - slope * xhat) as a constant.
  kAda,
  /// AdaNorm as in its authors' code: kAda with the unbiased deviation and with eps outside the
  /// root. Its rstd = 1 / (sqrt(sum((x - mean)^2) / (cols - 1)) + eps). Requires cols >= 2.
  kAdaAsCoded,
  /// RMSNorm (Zhang & Sennrich 2019): y = gain * xhat + bias with mean 0, so that
  /// rstd = 1 / sqrt(mean(x^2) + eps).
  kRms,
};

/// Options of NormForward and NormBackward.
struct NormOptions {
  double eps = 1e-5;         ///< added to the variance, inside the root; finite, >= 0
  double scale = 1;          ///< C of AdaNorm, finite; other norms ignore it
  double slope = 0.1;        ///< k of AdaNorm, finite; other norms ignore it
  ParallelFor parallel_for;  ///< splits large calls over threads; empty: DefaultParallelFor
  /// Set if the output pages (y or dx) have never been touched, as fresh from mmap. Disables
  /// non-temporal stores for large outputs. Results are the same; ChannelNorm ignores it.
  bool new_outputs = false;
};

/// Arrays of NormForward. T, the element type of the rows, is float, double, bfloat16 or float16.
/// P, the type of gain and bias, is T or float. Arithmetic and statistics use Compute<T>.
///
/// A call can have several parameter sets, each a gain and a bias. With S = `sets`, row r uses set
/// (r / set_rows) % S. Two layouts are supported:
///   - x is [N, S, cols], with one set for each head or group: set_rows is 1. The statistics are
///     stored as [S, N].
///   - x is [S, N, cols], with one set for each sample: set_rows is N, or 0.
///
/// Norms with gain and bias can be gated by z, the array `gate`, with silu(z) = z / (1 + exp(-z)).
/// Without a gate, y is NORM(x) in the equations below; with a residual, x stands for the sum:
///   y = NORM(x) * silu(z)    by default (gated DeltaNet: Yang, Kautz & Hatamizadeh 2025)
///   y = NORM(x * silu(z))    with gate_before_norm (Mamba-2: Dao & Gu 2024)
/// A gated call computes in Compute<T> from x and z to y, which is rounded once. As in PyTorch, z
/// of -infinity gives NaN; otherwise silu is within 6 ulp, and results below 1e-36 can be 0.
///
/// With the array `quantized`, y is also quantized to int8, as the input of a product of 8-bit
/// matrices, and is stored only if its array is given. Each row has a symmetric scale:
///   row_scale = max(|y|) / 127,   quantized = round(y * (127 / max(|y|)))
/// Here y is in Compute<T>, before it is rounded to T. The result is in [-127, 127], and ties round
/// to even. So quantized * row_scale is y up to row_scale / 2. If an element of y is NaN or
/// infinite, row_scale is NaN and quantized is 0; below 128 times the least normal number both are
/// 0.
template <class T, class P = T>
struct NormForwardArgs {
  int64_t rows = 0;               ///< number of rows, >= 0
  int64_t cols = 0;               ///< elements of a row, >= 0
  const T* x = nullptr;           ///< [rows, cols] rows to normalize
  const P* gain = nullptr;        ///< [S, cols], or null for ones
  const P* bias = nullptr;        ///< [S, cols], or null for zeros
  T* y = nullptr;                 ///< [rows, cols] output; null: only quantized; may be x
  Compute<T>* mean = nullptr;     ///< [rows] mean, rounded to Compute<T>; null: not saved
  Compute<T>* mean_lo = nullptr;  ///< [rows] low-order part of the mean; null: not saved
  Compute<T>* rstd = nullptr;     ///< [rows] 1 / sqrt(var + eps); null: not saved
  const T* residual = nullptr;    ///< [rows, cols] added to x before the norm, or null
  T* sum = nullptr;      ///< [rows, cols] x + residual, required then; may be x or residual itself
  int64_t x_stride = 0;  ///< elements from one row of x to the next, >= cols; 0: cols
  int64_t y_stride = 0;  ///< of y
  int64_t residual_stride = 0;    ///< of residual
  int64_t sum_stride = 0;         ///< of sum
  int64_t sets = 1;               ///< S, >= 1, divides rows
  int64_t set_rows = 0;           ///< consecutive rows of a set: 1 or rows / S; 0: rows / S
  const T* gate = nullptr;        ///< [rows, cols] z, or null for no gate
  int64_t gate_stride = 0;        ///< of gate
  bool gate_before_norm = false;  ///< multiply x, not NORM(x), by silu(z)
  /// Round xhat to T before the product with the gain, as in Llama and T5; y is rounded again. With
  /// a gate after the norm, NORM(x) is rounded as well, as in Qwen3-Next. Changes 16-bit types
  /// only.
  bool cast_before_gain = false;
  int8_t* quantized = nullptr;      ///< [rows, cols] y in int8; null: not quantized
  Compute<T>* row_scale = nullptr;  ///< [rows] scale of `quantized`, required with it
  int64_t quantized_stride = 0;     ///< of quantized
};

/// Arrays of NormBackward; types as in NormForwardArgs. For a loss L, dy = dL/dy and so on.
template <class T, class P = T>
struct NormBackwardArgs {
  int64_t rows = 0;         ///< number of rows, >= 0
  int64_t cols = 0;         ///< elements of a row, >= 0
  const T* dy = nullptr;    ///< [rows, cols] gradient of the output
  const T* x = nullptr;     ///< [rows, cols] input of NormForward; with a residual, its `sum`
  const P* gain = nullptr;  ///< [S, cols], or null for ones, as in NormForward
  const Compute<T>* mean = nullptr;     ///< [rows] as saved by NormForward; ignored by RMSNorm
  const Compute<T>* mean_lo = nullptr;  ///< [rows] as saved by NormForward; ignored by RMSNorm
  const Compute<T>* rstd = nullptr;     ///< [rows] as saved by NormForward
  T* dx = nullptr;                      ///< [rows, cols] gradient of x, or null; may be dy itself
  P* dgain = nullptr;                   ///< [S, cols] gradient of the gain, or null
  P* dbias = nullptr;                   ///< [S, cols] gradient of the bias, or null
  const T* dsum = nullptr;   ///< [rows, cols] gradient of NormForward's `sum`, added to dx, or null
  int64_t dy_stride = 0;     ///< elements from one row of dy to the next, >= cols; 0: cols
  int64_t x_stride = 0;      ///< of x
  int64_t dx_stride = 0;     ///< of dx
  int64_t dsum_stride = 0;   ///< of dsum
  int64_t sets = 1;          ///< S, as in NormForward
  int64_t set_rows = 0;      ///< as in NormForward
  const P* bias = nullptr;   ///< [S, cols] as in NormForward; only read for dgate
  const T* gate = nullptr;   ///< [rows, cols] z, or null, as in NormForward
  T* dgate = nullptr;        ///< [rows, cols] gradient of z, or null
  int64_t gate_stride = 0;   ///< of gate
  int64_t dgate_stride = 0;  ///< of dgate
  bool gate_before_norm = false;  ///< as in NormForward
  bool cast_before_gain = false;  ///< as in NormForward; the gradients do not depend on it
};

/// Normalizes every row of `args.x`, or of `args.x + args.residual`, into `args.y`. Saves the
/// statistics that NormBackward needs in the arrays given for them.
///
/// The result of a row depends on that row only. It has the same bits for any number of threads and
/// rows, and on every machine with the same SIMD target. Statistics are accurate at any mean. A row
/// with a NaN or an infinity gives NaN, as does a constant row with eps = 0. With cols = 0 the
/// statistics are NaN.
///
/// Throws ArgumentError if a size is negative or too large, a stride is less than cols, or sets do
/// not divide rows. Also if eps is negative, or eps, scale or slope is not finite. Also if a
/// required array is null, an array is misaligned, row_scale is given without quantized, or gain,
/// bias or gate to a norm without gain and bias.
/// Also if an output overlaps another array; y = x with equal strides is allowed. Throws
/// std::bad_alloc if scratch memory cannot be allocated, before any row of the set is written.
template <class T, class P = T>
void NormForward(Norm norm, const NormForwardArgs<T, P>& args, const NormOptions& options = {});

/// Computes the requested gradients of NormForward, those of dx, dgain, dbias and dgate that are
/// not null, and overwrites their arrays. With means over the row:
///
///   g     = gain * dy                       (AdaNorm: scale * (1 - slope * xhat) * dy)
///   dx    = rstd * (g - a * mean(g) - b * xhat * mean(g * xhat))
///   dgain = sum over the rows of a set of dy * xhat
///   dbias = sum over the rows of a set of dy
///
/// a = 0 for RMSNorm, kDetachMean and kDetach; b = 0 for kDetachDeviation and kDetach; otherwise
/// both are 1. kDetach reads neither x, mean nor mean_lo. See docs/math.md for the derivation and
/// for b of kAdaAsCoded. With a gate, s = silu(z) and s' = dsilu(z)/dz:
///
///   y = NORM(x) * s:  the above with dy * s in place of dy, and dz = dy * NORM(x) * s'
///   y = NORM(x * s):  the above gives du for u = x * s; dx = du * s, dz = du * x * s'
///
/// Only kAdaAsCoded uses `options.eps`; for other norms `rstd` already contains it.
///
/// The order of the sums dgain and dbias depends only on the shape. So all gradients have the same
/// bits for any number of threads, and on every machine with the same SIMD target.
///
/// Throws ArgumentError as NormForward does, and if dgain or dbias is given for a norm without gain
/// and bias. Allows dx = dy with equal strides. Throws std::bad_alloc if scratch memory cannot be
/// allocated, before any row of the set is written.
template <class T, class P = T>
void NormBackward(Norm norm, const NormBackwardArgs<T, P>& args, const NormOptions& options = {});

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_NORM_H_
