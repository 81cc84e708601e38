#ifndef PLANISH_SRC_NORM_ONLINE_CHECK_H_
#define PLANISH_SRC_NORM_ONLINE_CHECK_H_

#include <cstdint>
#include <string>

#include "planish/online_norm.h"
#include "src/base/check.h"

// Argument checks of online_norm.h, for CPU and GPU. The state and the weights of cases are not
// checked on a GPU, because they are in device memory.
namespace planish::internal {

inline void CheckAlpha(const char* function, const std::string& name, double alpha) {
  if (!(alpha >= 0 && alpha <= 1)) {
    Fail(function, name, "be in [0, 1]", std::to_string(alpha));
  }
}

inline void CheckCases(const char* function, int64_t cols) {
  if (cols < 2) {
    Fail(function, "cols", "be at least 2 for the unbiased deviation", std::to_string(cols));
  }
}

template <class T, class P>
void CheckOnlineForward(const char* function, const OnlineNormForwardArgs<T, P>& args) {
  const int64_t rows = args.rows, cols = args.cols;
  const Array x = MatrixArray("x", args.x, rows, cols, cols);
  const Array gain = VectorArray("gain", args.gain, cols);
  const Array bias = VectorArray("bias", args.bias, cols);
  Array y = MatrixArray("y", args.y, rows, cols, cols);
  y.may_be = args.x;
  const Array mean = VectorArray("mean", args.mean, rows);
  const Array mean_lo = VectorArray("mean_lo", args.mean_lo, rows);
  const Array rstd = VectorArray("rstd", args.rstd, rows);
  const Array offset = VectorArray("offset", args.offset, rows);
  const Array deviation = VectorArray("deviation", args.deviation, rows);
  CheckNotNull(function, {x, y});
  CheckAligned(function, {x, gain, bias, y, mean, mean_lo, rstd, offset, deviation});
  CheckDisjoint(function, {y, mean, mean_lo, rstd, offset, deviation}, {x, gain, bias});
}

template <class T, class P>
void CheckOnlineBackward(const char* function, const OnlineNormBackwardArgs<T, P>& args) {
  const int64_t rows = args.rows, cols = args.cols;
  const Array dy = MatrixArray("dy", args.dy, rows, cols, cols);
  const Array x = MatrixArray("x", args.x, rows, cols, cols);
  const Array gain = VectorArray("gain", args.gain, cols);
  const Array mean = VectorArray("mean", args.mean, rows);
  const Array mean_lo = VectorArray("mean_lo", args.mean_lo, rows);
  const Array rstd = VectorArray("rstd", args.rstd, rows);
  const Array offset = VectorArray("offset", args.offset, rows);
  const Array deviation = VectorArray("deviation", args.deviation, rows);
  Array dx = MatrixArray("dx", args.dx, rows, cols, cols);
  dx.may_be = args.dy;
  const Array dgain = VectorArray("dgain", args.dgain, cols);
  const Array dbias = VectorArray("dbias", args.dbias, cols);
  CheckNotNull(function, {dy, x, mean, mean_lo, rstd, offset, deviation});
  CheckAligned(function, {dy, x, gain, mean, mean_lo, rstd, offset, deviation, dx, dgain, dbias});
  CheckDisjoint(function, {dx, dgain, dbias},
                {dy, x, gain, mean, mean_lo, rstd, offset, deviation});
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ONLINE_CHECK_H_
