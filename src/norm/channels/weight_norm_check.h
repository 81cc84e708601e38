#ifndef PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_CHECK_H_
#define PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_CHECK_H_

#include "planish/weight_norm.h"
#include "src/base/check.h"

// Argument checks of weight_norm.h, for CPU and GPU.
namespace planish::internal {

template <class T, class P>
void CheckWeightForward(const char* function, const WeightNormForwardArgs<T, P>& args) {
  const int64_t rows = args.rows, cols = args.cols;
  CheckShape<T>(function, rows, cols);
  const Array v = MatrixArray("v", args.v, rows, cols, cols);
  const Array g = VectorArray("g", args.g, rows);
  Array w = MatrixArray("w", args.w, rows, cols, cols);
  w.may_be = args.v;
  const Array norm = VectorArray("norm", args.norm, rows);
  CheckNotNull(function, {v, g, w});
  CheckAligned(function, {v, g, w, norm});
  CheckDisjoint(function, {w, norm}, {v, g});
}

template <class T, class P>
void CheckWeightBackward(const char* function, const WeightNormBackwardArgs<T, P>& args) {
  const int64_t rows = args.rows, cols = args.cols;
  CheckShape<T>(function, rows, cols);
  const Array dw = MatrixArray("dw", args.dw, rows, cols, cols);
  const Array v = MatrixArray("v", args.v, rows, cols, cols);
  const Array g = VectorArray("g", args.g, rows);
  const Array norm = VectorArray("norm", args.norm, rows);
  Array dv = MatrixArray("dv", args.dv, rows, cols, cols);
  dv.may_be = args.dw;
  const Array dg = VectorArray("dg", args.dg, rows);
  CheckNotNull(function, {dw, v, norm});
  if (args.dv) CheckNotNull(function, {g});
  CheckAligned(function, {dw, v, g, norm, dv, dg});
  CheckDisjoint(function, {dv, dg}, {dw, v, g, norm});
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_WEIGHT_NORM_CHECK_H_
