#ifndef PLANISH_POINTWISE_NORM_H_
#define PLANISH_POINTWISE_NORM_H_

#include <cstdint>

#include "planish/error.h"
#include "planish/parallel.h"
#include "planish/types.h"
#include "planish/version.h"

// Functions of single elements that replace a norm. Element (r, c) of a [rows, cols] matrix becomes
//   y = gain[c] * f(alpha * x + shift) + bias[c]
// with learnable scalars alpha and shift. DyT (Zhu, Chen, He, LeCun & Liu 2025, "Transformers
// without Normalization", Algorithm 1) has f = tanh and no shift, Derf (Chen, Lu, Zhu, Sun & Liu
// 2025, "Stronger Normalization-Free Transformers") f = erf. Both start with alpha = 0.5 and
// shift = 0. See core.h for the contract on lifetime, alignment, aliasing, concurrency and
// exceptions.
//
// Example:
//   const std::vector<float> x = {-4, 0, 1, 40}, gain = {1, 10};
//   const float alpha = 0.5;
//   std::vector<float> y(4);
//   planish::PointwiseNormForward<float>(planish::Pointwise::kTanh, {.rows = 2,
//                                                                    .cols = 2,
//                                                                    .x = x.data(),
//                                                                    .alpha = &alpha,
//                                                                    .gain = gain.data(),
//                                                                    .y = y.data()});
//   for (const float value : y) std::printf("%.2f ", value);
//   // prints -0.96 0.00 0.46 10.00
namespace planish {
inline namespace PLANISH_API {

/// The function f.
enum class Pointwise : uint8_t {
  kTanh,  ///< hyperbolic tangent: DyT
  kErf,   ///< error function: Derf
};

/// Arrays of PointwiseNormForward. The types T and P are those of NormForwardArgs.
template <class T, class P = T>
struct PointwiseNormForwardArgs {
  int64_t rows = 0;          ///< >= 0
  int64_t cols = 0;          ///< >= 0
  const T* x = nullptr;      ///< [rows, cols] input
  const P* alpha = nullptr;  ///< [1] factor of x
  const P* shift = nullptr;  ///< [1] added to alpha * x, or null for 0
  const P* gain = nullptr;   ///< [cols], or null for ones
  const P* bias = nullptr;   ///< [cols], or null for zeros
  T* y = nullptr;            ///< [rows, cols] output; may be x itself
};

/// Arrays of PointwiseNormBackward. For a loss L, dy = dL/dy and so on.
template <class T, class P = T>
struct PointwiseNormBackwardArgs {
  int64_t rows = 0;          ///< >= 0
  int64_t cols = 0;          ///< >= 0
  const T* dy = nullptr;     ///< [rows, cols] gradient of the output
  const T* x = nullptr;      ///< [rows, cols] input of PointwiseNormForward
  const P* alpha = nullptr;  ///< [1], as in PointwiseNormForward
  const P* shift = nullptr;  ///< [1], or null for 0, as in PointwiseNormForward
  const P* gain = nullptr;   ///< [cols], or null for ones, as in PointwiseNormForward
  T* dx = nullptr;           ///< [rows, cols] gradient of x, or null; may be dy itself
  P* dalpha = nullptr;       ///< [1] gradient of alpha, or null
  P* dshift = nullptr;       ///< [1] gradient of shift, or null
  P* dgain = nullptr;        ///< [cols] gradient of the gain, or null
  P* dbias = nullptr;        ///< [cols] gradient of the bias, or null
};

/// Computes y = gain * f(alpha * x + shift) + bias in Compute<T>. The values of f are within 4 ulp.
///
/// An element's result depends only on this element and the parameters. NaN gives NaN; an infinity
/// gives bias + gain or bias - gain.
///
/// Throws ArgumentError if a size is negative or too large, `function` is not an enumerator, a
/// required array is null, an array is misaligned, or an output overlaps another array; y = x is
/// allowed. Throws std::bad_alloc if scratch memory cannot be allocated, before y is written.
template <class T, class P = T>
void PointwiseNormForward(Pointwise function, const PointwiseNormForwardArgs<T, P>& args,
                          const ParallelFor& parallel_for = {});

/// Computes the requested gradients of PointwiseNormForward, those whose arrays are not null, and
/// overwrites these arrays. With z = alpha * x + shift, and sums over all elements or over rows:
///
///   dx     = alpha * g,   g = dy * gain * f'(z)
///   dalpha = sum(g * x),  dshift = sum(g)
///   dgain  = sum over rows of dy * f(z),   dbias = sum over rows of dy
///
/// Sums are in blocks that depend only on the shape, added in order in double. So the gradients
/// have the same bits for any number of threads. Throws as PointwiseNormForward does; dx = dy is
/// allowed.
template <class T, class P = T>
void PointwiseNormBackward(Pointwise function, const PointwiseNormBackwardArgs<T, P>& args,
                           const ParallelFor& parallel_for = {});

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_POINTWISE_NORM_H_
