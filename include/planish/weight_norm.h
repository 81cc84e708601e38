#ifndef PLANISH_WEIGHT_NORM_H_
#define PLANISH_WEIGHT_NORM_H_

#include <cstdint>

#include "planish/error.h"
#include "planish/norm.h"
#include "planish/parallel.h"
#include "planish/types.h"

// Weight normalisation (Salimans & Kingma 2016; Ba, Kiros & Hinton 2016, Eq. 5): every row of the
// weights is a direction v and a length g, w = g * v / ||v||, with ||v|| = sqrt(sum(v^2)).
namespace planish {

/// The arrays of WeightNormForward; types as in NormForwardArgs.
template <class T, class P = T>
struct WeightNormForwardArgs {
  int64_t rows = 0;            ///< rows of the weights, >= 0
  int64_t cols = 0;            ///< numbers in a row, >= 0
  const T* v = nullptr;        ///< [rows, cols] the directions
  const P* g = nullptr;        ///< [rows] the lengths
  T* w = nullptr;              ///< [rows, cols] the weights; may be v itself
  Compute<T>* norm = nullptr;  ///< [rows] ||v||; null: not saved
};

/// The arrays of WeightNormBackward. L is the loss, dw = dL/dw and so on.
template <class T, class P = T>
struct WeightNormBackwardArgs {
  int64_t rows = 0;                  ///< rows of the weights, >= 0
  int64_t cols = 0;                  ///< numbers in a row, >= 0
  const T* dw = nullptr;             ///< [rows, cols] the gradient of the weights
  const T* v = nullptr;              ///< [rows, cols] the directions
  const P* g = nullptr;              ///< [rows] the lengths; dv alone needs them
  const Compute<T>* norm = nullptr;  ///< [rows] as saved by WeightNormForward
  T* dv = nullptr;                   ///< [rows, cols] the gradient of v, or null; may be dw itself
  P* dg = nullptr;                   ///< [rows] the gradient of g, or null
};

/// Writes w = g * v / ||v|| of every row, and its norm where an array is given for it.
///
/// A row's result depends on that row alone, and is the same for any number of threads, to the bit.
/// Squares neither overflow nor vanish. A row of zeros has no direction: it gives NaN, as in
/// PyTorch, and the norm 0. A row that holds NaN or an infinity gives NaN.
///
/// Throws planish::Error when a size is negative or too large, a needed array is null, an array is
/// not aligned to its type, or an output overlaps another array (w = v is allowed); std::bad_alloc
/// when sums find no memory: the outputs are then undefined.
template <class T, class P = T>
void WeightNormForward(const WeightNormForwardArgs<T, P>& args,
                       const ParallelFor& parallel_for = {});

/// Takes `args.dw` back through WeightNormForward: writes the gradients that are asked for, in
/// place of what their arrays held. Sums run over a row.
///
///   dg = sum(dw * v) / ||v||
///   dv = g / ||v|| * (dw - v / ||v|| * dg)
///
/// Throws as WeightNormForward does (dv = dw is allowed).
template <class T, class P = T>
void WeightNormBackward(const WeightNormBackwardArgs<T, P>& args,
                        const ParallelFor& parallel_for = {});

#define PLANISH_EXTERN(T, P)                                                                      \
  extern template void WeightNormForward(const WeightNormForwardArgs<T, P>&, const ParallelFor&); \
  extern template void WeightNormBackward(const WeightNormBackwardArgs<T, P>&, const ParallelFor&);
PLANISH_NORM_TYPES(PLANISH_EXTERN)
#undef PLANISH_EXTERN

}  // namespace planish

#endif  // PLANISH_WEIGHT_NORM_H_
