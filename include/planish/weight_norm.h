#ifndef PLANISH_WEIGHT_NORM_H_
#define PLANISH_WEIGHT_NORM_H_

#include <cstdint>

#include "planish/error.h"
#include "planish/norm.h"
#include "planish/parallel.h"
#include "planish/types.h"
#include "planish/version.h"

// Weight normalization (Salimans & Kingma 2016; Ba, Kiros & Hinton 2016, Eq. 5). Each row of the
// weights has a direction v and a length g: w = g * v / ||v||, with ||v|| = sqrt(sum(v^2)). See
// core.h for the contract on lifetime, alignment, aliasing, concurrency and exceptions.
//
// Example:
//   const std::vector<float> v = {3, 4, 0, 2}, g = {10, 1};
//   std::vector<float> w(4);
//   planish::WeightNormForward<float>(
//       {.rows = 2, .cols = 2, .v = v.data(), .g = g.data(), .w = w.data()});
//   for (const float value : w) std::printf("%.2f ", value);
//   // prints 6.00 8.00 0.00 1.00
namespace planish {
inline namespace PLANISH_API {

/// Arrays of WeightNormForward; types as in NormForwardArgs.
template <class T, class P = T>
struct WeightNormForwardArgs {
  int64_t rows = 0;            ///< rows of the weight matrix, >= 0
  int64_t cols = 0;            ///< elements of a row, >= 0
  const T* v = nullptr;        ///< [rows, cols] directions
  const P* g = nullptr;        ///< [rows] lengths
  T* w = nullptr;              ///< [rows, cols] weights; may be v itself
  Compute<T>* norm = nullptr;  ///< [rows] ||v||; null: not saved
};

/// Arrays of WeightNormBackward. For a loss L, dw = dL/dw and so on.
template <class T, class P = T>
struct WeightNormBackwardArgs {
  int64_t rows = 0;                  ///< rows of the weight matrix, >= 0
  int64_t cols = 0;                  ///< elements of a row, >= 0
  const T* dw = nullptr;             ///< [rows, cols] gradient of the weights
  const T* v = nullptr;              ///< [rows, cols] directions
  const P* g = nullptr;              ///< [rows] lengths; only dv needs them
  const Compute<T>* norm = nullptr;  ///< [rows] as saved by WeightNormForward
  T* dv = nullptr;                   ///< [rows, cols] gradient of v, or null; may be dw itself
  P* dg = nullptr;                   ///< [rows] gradient of g, or null
};

/// Computes w = g * v / ||v|| for every row, and saves ||v|| if `args.norm` is given.
///
/// The result of a row depends on that row only. It has the same bits for any number of threads,
/// and on every machine with the same SIMD target. Squares neither overflow nor underflow. A row of
/// zeros gives NaN, as in PyTorch, with norm 0. A row with a NaN or an infinity gives NaN.
///
/// Throws ArgumentError if a size is negative or too large, a required array is null, an array is
/// misaligned, or an output overlaps another array. Allows w = v. Throws std::bad_alloc if scratch
/// memory cannot be allocated; the outputs are then undefined.
template <class T, class P = T>
void WeightNormForward(const WeightNormForwardArgs<T, P>& args,
                       const ParallelFor& parallel_for = {});

/// Computes the requested gradients of WeightNormForward, those whose arrays are not null, and
/// overwrites these arrays. Sums run over a row:
///
///   dg = sum(dw * v) / ||v||
///   dv = g / ||v|| * (dw - v / ||v|| * dg)
///
/// Throws as WeightNormForward does; dv = dw is allowed.
template <class T, class P = T>
void WeightNormBackward(const WeightNormBackwardArgs<T, P>& args,
                        const ParallelFor& parallel_for = {});

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_WEIGHT_NORM_H_
