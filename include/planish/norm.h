#ifndef PLANISH_NORM_H_
#define PLANISH_NORM_H_

#include <cstdint>

#include "planish/error.h"
#include "planish/parallel.h"

// Row normalisation. Every norm here takes a row x of `cols` numbers to
//   xhat = (x - mean) * rstd,   rstd = 1 / sqrt(var + eps),   var = mean((x - mean)^2)
// and an output y made of xhat. docs/math.md derives what is computed.
//
// Matrices are row-major and contiguous: element (r, c) of a [rows, cols] matrix lies at
// r * cols + c. All arguments are plain structs, to be filled by name:
//   NormForward<float>(Norm::kLayer, {.rows = 2, .cols = 3, .x = x, .y = y}, {.eps = 1e-6});
namespace planish {

/// The norms.
enum class Norm : uint8_t {
  /// LayerNorm (Ba, Kiros & Hinton 2016, Eq. 3): y = gain * xhat + bias.
  kLayer,
  /// LayerNorm-simple (Xu et al. 2019, section 3.1): y = xhat. Takes no gain and no bias.
  kLayerSimple,
};

/// What both directions take beside their arrays.
struct NormOptions {
  double eps = 1e-5;         ///< added to the variance, inside the root; finite and >= 0
  ParallelFor parallel_for;  ///< runs large calls on several threads; empty: the calling thread
};

/// The arrays of NormForward. T is float or double.
template <class T>
struct NormForwardArgs {
  int64_t rows = 0;         ///< number of rows, >= 0
  int64_t cols = 0;         ///< numbers in a row, >= 0
  const T* x = nullptr;     ///< [rows, cols] the rows to normalise
  const T* gain = nullptr;  ///< [cols], or null for ones
  const T* bias = nullptr;  ///< [cols], or null for zeros
  T* y = nullptr;           ///< [rows, cols] the output; may be x itself
  T* mean = nullptr;        ///< [rows] the mean rounded to T; null: not saved
  T* mean_lo = nullptr;  ///< [rows] the part of the mean that `mean` cannot hold; null: not saved
  T* rstd = nullptr;     ///< [rows] 1 / sqrt(var + eps); null: not saved
};

/// The arrays of NormBackward. T is float or double. L is the loss, dy = dL/dy and so on.
template <class T>
struct NormBackwardArgs {
  int64_t rows = 0;            ///< number of rows, >= 0
  int64_t cols = 0;            ///< numbers in a row, >= 0
  const T* dy = nullptr;       ///< [rows, cols] the gradient of the output
  const T* x = nullptr;        ///< [rows, cols] the input of NormForward
  const T* gain = nullptr;     ///< [cols], or null for ones, as in NormForward
  const T* mean = nullptr;     ///< [rows] as saved by NormForward
  const T* mean_lo = nullptr;  ///< [rows] as saved by NormForward
  const T* rstd = nullptr;     ///< [rows] as saved by NormForward
  T* dx = nullptr;             ///< [rows, cols] the gradient of x, or null; may be dy itself
  T* dgain = nullptr;          ///< [cols] the gradient of the gain, or null
  T* dbias = nullptr;          ///< [cols] the gradient of the bias, or null
};

/// Normalises every row of `args.x` [rows, cols] into `args.y` and saves the moments that
/// NormBackward needs where arrays are given for them.
///
/// A row's result depends on that row alone, and is the same for any number of threads, to the
/// bit. The moments are accurate for any mean. A row that holds NaN or an infinity gives NaN, as do
/// a constant row with eps = 0 and a row of doubles whose variance overflows (1e150 from the mean).
/// A row of no numbers (cols = 0) has NaN for moments.
///
/// Throws planish::Error when a size is negative or too large, eps is negative or not finite, a
/// needed array is null, or an output overlaps another array (y = x is allowed).
template <class T>
void NormForward(Norm norm, const NormForwardArgs<T>& args, const NormOptions& options = {});

/// Takes `args.dy` [rows, cols] back through NormForward: writes the gradients `dx` [rows, cols],
/// `dgain` [cols] and `dbias` [cols] that are asked for. They replace what the arrays held.
///
///   g     = gain * dy
///   dx    = rstd * (g - mean(g) - xhat * mean(g * xhat))     (means over the row)
///   dgain = sum over rows of dy * xhat
///   dbias = sum over rows of dy
///
/// dgain and dbias are summed in an order that the shape alone fixes: they are the same for any
/// number of threads, to the bit. `options.eps` is not used: `rstd` holds it.
///
/// Throws planish::Error when a size is negative or too large, a needed array is null, the norm
/// has no gain or bias whose gradient could be taken, or an output overlaps another array
/// (dx = dy is allowed); std::bad_alloc when the partial sums find no memory, before anything is
/// written.
template <class T>
void NormBackward(Norm norm, const NormBackwardArgs<T>& args, const NormOptions& options = {});

extern template void NormForward(Norm, const NormForwardArgs<float>&, const NormOptions&);
extern template void NormForward(Norm, const NormForwardArgs<double>&, const NormOptions&);
extern template void NormBackward(Norm, const NormBackwardArgs<float>&, const NormOptions&);
extern template void NormBackward(Norm, const NormBackwardArgs<double>&, const NormOptions&);

}  // namespace planish

#endif  // PLANISH_NORM_H_
