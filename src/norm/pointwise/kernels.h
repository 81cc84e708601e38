#ifndef PLANISH_SRC_NORM_POINTWISE_KERNELS_H_
#define PLANISH_SRC_NORM_POINTWISE_KERNELS_H_

#include <cstdint>

#include "planish/pointwise_norm.h"
#include "planish/types.h"

// Backward of the pointwise functions, for every element type, with the SIMD target in use. The
// forward pass is ChannelMap::kTanh or kErf of columns.h. Arguments are not checked.
namespace planish::internal {

/// A part of the matrices: `cols` columns of `rows` rows, `stride` elements apart.
template <class T>
struct PointwiseTile {
  using C = Compute<T>;
  Pointwise function = Pointwise::kTanh;
  int64_t rows = 0, cols = 0, stride = 0;
  const T* dy = nullptr;
  const T* x = nullptr;
  T* dx = nullptr;  ///< null: not computed; may be dy
  C alpha = 1, shift = 0;
  const C* gain = nullptr;     ///< [cols]
  double* dgain = nullptr;     ///< [cols] sums over rows are added to these
  double* dbias = nullptr;     ///< [cols]
  bool use_nt_stores = false;  ///< requires dx and its rows to begin at vectors
};

/// Sums of g * x and of g over a tile.
struct PointwiseSums {
  double dalpha = 0, dshift = 0;
};

/// Computes dx, and adds the sums of dgain and dbias. Returns those of dalpha and dshift.
template <class T>
PointwiseSums PointwiseGradients(const PointwiseTile<T>& tile);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_POINTWISE_KERNELS_H_
