#ifndef PLANISH_NORM_H_
#define PLANISH_NORM_H_

#include <cstdint>

#include "planish/error.h"
#include "planish/parallel.h"
#include "planish/types.h"

// Row normalisation. Every norm here takes a row x of `cols` numbers to
//   xhat = (x - mean) * rstd,   rstd = 1 / sqrt(var + eps),   var = mean((x - mean)^2)
// and an output y made of xhat. docs/math.md derives what is computed.
//
// Matrices are row-major: element (r, c) of a [rows, cols] matrix lies at r * stride + c, where the
// stride is `cols` unless given. All arguments are plain structs, to be filled by name:
//   NormForward<float>(Norm::kLayer, {.rows = 2, .cols = 3, .x = x, .y = y}, {.eps = 1e-6});
namespace planish {

/// The norms.
enum class Norm : uint8_t {
  /// LayerNorm (Ba, Kiros & Hinton 2016, Eq. 3): y = gain * xhat + bias.
  kLayer,
  /// LayerNorm-simple (Xu et al. 2019, section 3.1): y = xhat. Takes no gain and no bias, nor do
  /// the norms that follow, down to AdaNorm.
  kLayerSimple,
  /// DetachNorm (Xu et al. 2019, Eq. 4): y = xhat, with mean and deviation constants in backward.
  kDetach,
  /// DetachNorm of the mean alone (Xu et al. 2019, Table 3).
  kDetachMean,
  /// DetachNorm of the deviation alone (Xu et al. 2019, Table 3, "detach variance").
  kDetachDeviation,
  /// AdaNorm (Xu et al. 2019, Eq. 9): y = scale * (1 - slope * xhat) * xhat, with the factor
  /// before the last xhat a constant in backward.
  kAda,
  /// AdaNorm as its authors' code has it: the unbiased deviation, and eps beside it:
  /// rstd = 1 / (sqrt(sum((x - mean)^2) / (cols - 1)) + eps). Needs cols >= 2.
  kAdaAsCoded,
  /// RMSNorm (Zhang & Sennrich 2019): y = gain * xhat + bias with mean 0, so that
  /// rstd = 1 / sqrt(mean(x^2) + eps).
  kRms,
};

/// What both directions take beside their arrays.
struct NormOptions {
  double eps = 1e-5;         ///< added to the variance, inside the root; finite and >= 0
  double scale = 1;          ///< AdaNorm's C, finite; other norms do not read it
  double slope = 0.1;        ///< AdaNorm's k, finite; other norms do not read it
  ParallelFor parallel_for;  ///< runs large calls on several threads; empty: the library's own
  /// Whether y or dx is memory that nothing has been written to since the system gave it. A large
  /// result then goes through the caches, where the system has just put the zeros that it replaces;
  /// otherwise past them. Results are the same; norms over channels do not read it.
  bool new_outputs = false;
};

/// The arrays of NormForward. T is the type of the rows: float, double, bfloat16 or float16. P is
/// the type of gain and bias: T or float. Arithmetic and moments are in double for double and in
/// float otherwise.
template <class T, class P = T>
struct NormForwardArgs {
  int64_t rows = 0;               ///< number of rows, >= 0
  int64_t cols = 0;               ///< numbers in a row, >= 0
  const T* x = nullptr;           ///< [rows, cols] the rows to normalise
  const P* gain = nullptr;        ///< [cols], or null for ones
  const P* bias = nullptr;        ///< [cols], or null for zeros
  T* y = nullptr;                 ///< [rows, cols] the output; may be x itself
  Compute<T>* mean = nullptr;     ///< [rows] the mean, rounded; null: not saved
  Compute<T>* mean_lo = nullptr;  ///< [rows] what `mean` cannot hold of it; null: not saved
  Compute<T>* rstd = nullptr;     ///< [rows] 1 / sqrt(var + eps); null: not saved
  const T* residual = nullptr;    ///< [rows, cols] added to x before the norm, or null
  T* sum = nullptr;             ///< [rows, cols] x + residual; needed with residual; may be either
  int64_t x_stride = 0;         ///< from one row of x to the next, >= cols; 0: cols
  int64_t y_stride = 0;         ///< likewise of y
  int64_t residual_stride = 0;  ///< likewise of residual
  int64_t sum_stride = 0;       ///< likewise of sum
};

/// The arrays of NormBackward, of types as in NormForwardArgs. L is the loss, dy = dL/dy and so on.
template <class T, class P = T>
struct NormBackwardArgs {
  int64_t rows = 0;         ///< number of rows, >= 0
  int64_t cols = 0;         ///< numbers in a row, >= 0
  const T* dy = nullptr;    ///< [rows, cols] the gradient of the output
  const T* x = nullptr;     ///< [rows, cols] the input of NormForward; with a residual the sum
  const P* gain = nullptr;  ///< [cols], or null for ones, as in NormForward
  const Compute<T>* mean = nullptr;     ///< [rows] as saved by NormForward; RMSNorm: not read
  const Compute<T>* mean_lo = nullptr;  ///< [rows] as saved by NormForward; RMSNorm: not read
  const Compute<T>* rstd = nullptr;     ///< [rows] as saved by NormForward
  T* dx = nullptr;     ///< [rows, cols] the gradient of x, or null; may be dy itself
  P* dgain = nullptr;  ///< [cols] the gradient of the gain, or null
  P* dbias = nullptr;  ///< [cols] the gradient of the bias, or null
  const T* dsum =
      nullptr;            ///< [rows, cols] the gradient of NormForward's sum, added to dx, or null
  int64_t dy_stride = 0;  ///< from one row of dy to the next, >= cols; 0: cols
  int64_t x_stride = 0;   ///< likewise of x
  int64_t dx_stride = 0;  ///< likewise of dx
  int64_t dsum_stride = 0;  ///< likewise of dsum
};

/// Normalises every row of `args.x` [rows, cols], or of `args.x + args.residual`, into `args.y`,
/// and saves the moments that NormBackward needs where arrays are given for them.
///
/// A row's result depends on that row alone, and is the same for any number of threads, to the
/// bit. The moments are accurate for any mean. A row that holds NaN or an infinity gives NaN, as
/// does a constant row with eps = 0. A row of no numbers (cols = 0) has NaN for moments.
///
/// Throws planish::Error when a size is negative or too large, a stride is less than cols, eps is
/// negative or not finite, a needed array is null, an array is not aligned to its type, the norm
/// takes no gain and bias and has one, or an output overlaps another array (y = x is allowed, with
/// the same stride).
template <class T, class P = T>
void NormForward(Norm norm, const NormForwardArgs<T, P>& args, const NormOptions& options = {});

/// Takes `args.dy` [rows, cols] back through NormForward: writes the gradients `dx` [rows, cols],
/// `dgain` [cols] and `dbias` [cols] that are asked for. They replace what the arrays held.
///
///   g     = gain * dy                       (AdaNorm: scale * (1 - slope * xhat) * dy)
///   dx    = rstd * (g - a * mean(g) - b * xhat * mean(g * xhat))     (means over the row)
///   dgain = sum over rows of dy * xhat
///   dbias = sum over rows of dy
///
/// where a and b are 1, but 0 where the gradient does not pass through the mean or the deviation:
/// a = 0 for RMSNorm, kDetachMean and kDetach, b = 0 for kDetachDeviation and kDetach. A norm with
/// both 0 does not read x, mean and mean_lo.
///
/// dgain and dbias are summed in an order that the shape alone fixes: they are the same for any
/// number of threads, to the bit. `options.eps` is used by kAdaAsCoded alone: `rstd` holds it.
///
/// Throws planish::Error as NormForward does, and when the norm has no gain or bias whose gradient
/// could be taken (dx = dy is allowed, with the same stride); std::bad_alloc when the partial sums
/// find no memory, before anything is written.
template <class T, class P = T>
void NormBackward(Norm norm, const NormBackwardArgs<T, P>& args, const NormOptions& options = {});

#define PLANISH_NORM_TYPES(X) \
  X(float, float)             \
  X(double, double)           \
  X(double, float)            \
  X(bfloat16, bfloat16)       \
  X(bfloat16, float)          \
  X(float16, float16)         \
  X(float16, float)
#define PLANISH_EXTERN(T, P)                                                                \
  extern template void NormForward(Norm, const NormForwardArgs<T, P>&, const NormOptions&); \
  extern template void NormBackward(Norm, const NormBackwardArgs<T, P>&, const NormOptions&);
PLANISH_NORM_TYPES(PLANISH_EXTERN)
#undef PLANISH_EXTERN

}  // namespace planish

#endif  // PLANISH_NORM_H_
