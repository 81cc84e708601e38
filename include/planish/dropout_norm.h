#ifndef PLANISH_DROPOUT_NORM_H_
#define PLANISH_DROPOUT_NORM_H_

#include <cstdint>

#include "planish/error.h"
#include "planish/norm.h"
#include "planish/types.h"
#include "planish/version.h"

// What stands between two layers of a Transformer, in one pass over memory: dropout of a layer's
// output, the sum with the residual, and the norm of the next layer.
//
//   sum = residual + dropout(x),   y = NORM(sum)
//
// Dropout (Srivastava et al. 2014) multiplies an element by 1 / q with the probability q, and by 0
// otherwise. q is 1 - p, rounded to a multiple of 2^-16. The choice depends only on the seed, the
// stream and the element's position, so backward repeats it and no mask is stored. Element (r, c)
// has 16 bits of Philox4x32-10 (Salmon, Moraes, Dror & Shaw 2011, "Parallel Random Numbers: As
// Easy as 1, 2, 3"), and is kept if they are less than q * 2^16. With i = c % 128 / 16:
//
//   key = seed,   counter = {c / 128 * 16 + c % 16, r % 2^32, r / 2^32, stream}
//   bits = the lower half of word i / 2 for an even i, its upper half for an odd i
//
// Matrices are contiguous. See core.h for the contract on lifetime, alignment, aliasing,
// concurrency and exceptions.
//
// Example:
//   const std::vector<float> x = {1, 2, 3, 4}, residual = {10, 20, 30, 40};
//   std::vector<float> sum(4), y(4);
//   planish::DropoutNormForward<float>(planish::Norm::kLayer,
//                                      {.rows = 1,
//                                       .cols = 4,
//                                       .x = x.data(),
//                                       .residual = residual.data(),
//                                       .sum = sum.data(),
//                                       .y = y.data()},
//                                      {.p = 0.5, .seed = 3});
//   for (const float value : sum) std::printf("%.0f ", value);
//   // prints 12 24 36 40
namespace planish {
inline namespace PLANISH_API {

/// Dropout of one call. Calls with different seeds or streams drop independently.
struct Dropout {
  double p = 0.5;       ///< probability of 0, in [0, 1]
  uint64_t seed = 0;    ///< for example a new random number in each training step
  uint32_t stream = 0;  ///< for example the number of the layer
};

/// Arrays of DropoutNormForward. The types T and P are those of NormForwardArgs.
template <class T, class P = T>
struct DropoutNormForwardArgs {
  int64_t rows = 0;               ///< >= 0
  int64_t cols = 0;               ///< >= 0
  const T* x = nullptr;           ///< [rows, cols] elements to drop
  const T* residual = nullptr;    ///< [rows, cols] added to dropout(x), or null for zeros
  const P* gain = nullptr;        ///< [cols], or null for ones
  const P* bias = nullptr;        ///< [cols], or null for zeros
  T* sum = nullptr;               ///< [rows, cols] the norm's input; may be x or residual itself
  T* y = nullptr;                 ///< [rows, cols] output; may be x itself
  Compute<T>* mean = nullptr;     ///< [rows] as in NormForwardArgs; null: not saved
  Compute<T>* mean_lo = nullptr;  ///< [rows]
  Compute<T>* rstd = nullptr;     ///< [rows]
};

/// Arrays of DropoutNormBackward. For a loss L, dy = dL/dy and so on.
template <class T, class P = T>
struct DropoutNormBackwardArgs {
  int64_t rows = 0;                     ///< >= 0
  int64_t cols = 0;                     ///< >= 0
  const T* dy = nullptr;                ///< [rows, cols] gradient of the output
  const T* sum = nullptr;               ///< [rows, cols] as written by DropoutNormForward
  const P* gain = nullptr;              ///< [cols], or null for ones, as in DropoutNormForward
  const Compute<T>* mean = nullptr;     ///< [rows] as saved by DropoutNormForward
  const Compute<T>* mean_lo = nullptr;  ///< [rows]
  const Compute<T>* rstd = nullptr;     ///< [rows]
  const T* dsum = nullptr;  ///< [rows, cols] gradient of `sum` by other paths, or null for zeros
  T* dx = nullptr;          ///< [rows, cols] gradient of x
  T* dresidual = nullptr;   ///< [rows, cols] gradient of residual, or null; may be dy itself
  P* dgain = nullptr;       ///< [cols] gradient of the gain, or null
  P* dbias = nullptr;       ///< [cols] gradient of the bias, or null
};

/// Computes sum and y. `sum` is computed in Compute<T> and rounded to T; y is NormForward of the
/// rounded sum. Bits are the same for any number of threads.
///
/// Throws ArgumentError if p is not in [0, 1], and as NormForward does. Throws std::bad_alloc if
/// scratch memory cannot be allocated; the outputs are then undefined.
template <class T, class P = T>
void DropoutNormForward(Norm norm, const DropoutNormForwardArgs<T, P>& args, const Dropout& dropout,
                        const NormOptions& options = {});

/// Computes the gradients. dresidual is NormBackward's dx for the input `sum`, with dsum added, and
/// dx is dresidual, rounded to T, times 1 / q or 0. Sums over rows are added in double, in an order
/// that depends only on the shape, so all bits are the same for any number of threads. Throws as
/// DropoutNormForward does.
template <class T, class P = T>
void DropoutNormBackward(Norm norm, const DropoutNormBackwardArgs<T, P>& args,
                         const Dropout& dropout, const NormOptions& options = {});

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_DROPOUT_NORM_H_
