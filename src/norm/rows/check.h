#ifndef PLANISH_SRC_NORM_ROWS_CHECK_H_
#define PLANISH_SRC_NORM_ROWS_CHECK_H_

#include <cstdint>
#include <string>

#include "src/base/check.h"
#include "src/norm/recipe.h"
#include "src/norm/recipe_check.h"

// Argument checks of NormForward and NormBackward, for CPU and GPU.
namespace planish::internal {

/// Checks that an output at the same address as an input also has its stride.
inline void CheckInPlace(const char* function, const char* output, int64_t output_stride,
                         const char* input, int64_t input_stride, bool same) {
  if (same && output_stride != input_stride) {
    Fail(function, std::string(output) + "_stride",
         "equal " + std::string(input) + "_stride (" + std::to_string(input_stride) + ") if " +
             output + " is " + input,
         std::to_string(output_stride));
  }
}

/// Checks the arguments of NormForward and returns them with all strides filled in. Throws
/// ArgumentError.
template <class T, class P, class Options>
NormForwardArgs<T, P> CheckForward(const char* function, const Recipe& recipe,
                                   NormForwardArgs<T, P> args, const Options& options) {
  const int64_t rows = args.rows, cols = args.cols;
  CheckShape<T>(function, rows, cols);
  CheckOptions(function, recipe, options, "cols", cols, rows);
  const auto stride = [&](const char* name, int64_t given) {
    return CheckedStride<T>(function, name, given, rows, cols);
  };
  args.x_stride = stride("x_stride", args.x_stride);
  args.y_stride = stride("y_stride", args.y_stride);
  args.residual_stride = stride("residual_stride", args.residual_stride);
  args.sum_stride = stride("sum_stride", args.sum_stride);
  const Array x = MatrixArray("x", args.x, rows, cols, args.x_stride);
  const Array gain = VectorArray("gain", args.gain, cols);
  const Array bias = VectorArray("bias", args.bias, cols);
  const Array residual = MatrixArray("residual", args.residual, rows, cols, args.residual_stride);
  Array y = MatrixArray("y", args.y, rows, cols, args.y_stride);
  Array sum = MatrixArray("sum", args.sum, rows, cols, args.sum_stride);
  const Array mean = VectorArray("mean", args.mean, rows);
  const Array mean_lo = VectorArray("mean_lo", args.mean_lo, rows);
  const Array rstd = VectorArray("rstd", args.rstd, rows);
  CheckAffine(function, recipe, {gain, bias});
  CheckNotNull(function, {x, y});
  if (args.residual != nullptr) {
    CheckNotNull(function, {sum});
    sum.may_be = args.x;
    sum.may_also_be = args.residual;
    CheckInPlace(function, "sum", args.sum_stride, "x", args.x_stride, args.sum == args.x);
    CheckInPlace(function, "sum", args.sum_stride, "residual", args.residual_stride,
                 args.sum == args.residual);
  } else if (args.sum != nullptr) {
    Fail(function, "sum", "be null without a residual", "an address");
  } else {
    y.may_be = args.x;
    CheckInPlace(function, "y", args.y_stride, "x", args.x_stride, args.y == args.x);
  }
  CheckAligned(function, {x, gain, bias, residual, y, sum, mean, mean_lo, rstd});
  CheckDisjoint(function, {y, sum, mean, mean_lo, rstd}, {x, gain, bias, residual});
  return args;
}

/// Checks the arguments of NormBackward and returns them with all strides filled in. Throws
/// ArgumentError.
template <class T, class P, class Options>
NormBackwardArgs<T, P> CheckBackward(const char* function, const Recipe& recipe,
                                     NormBackwardArgs<T, P> args, const Options& options) {
  const int64_t rows = args.rows, cols = args.cols;
  CheckShape<T>(function, rows, cols);
  CheckOptions(function, recipe, options, "cols", cols, rows);
  const auto stride = [&](const char* name, int64_t given) {
    return CheckedStride<T>(function, name, given, rows, cols);
  };
  args.dy_stride = stride("dy_stride", args.dy_stride);
  args.x_stride = stride("x_stride", args.x_stride);
  args.dx_stride = stride("dx_stride", args.dx_stride);
  args.dsum_stride = stride("dsum_stride", args.dsum_stride);
  const Array dy = MatrixArray("dy", args.dy, rows, cols, args.dy_stride);
  const Array x = MatrixArray("x", args.x, rows, cols, args.x_stride);
  const Array gain = VectorArray("gain", args.gain, cols);
  const Array mean = VectorArray("mean", args.mean, rows);
  const Array mean_lo = VectorArray("mean_lo", args.mean_lo, rows);
  const Array rstd = VectorArray("rstd", args.rstd, rows);
  const Array dsum = MatrixArray("dsum", args.dsum, rows, cols, args.dsum_stride);
  Array dx = MatrixArray("dx", args.dx, rows, cols, args.dx_stride);
  dx.may_be = args.dy;
  CheckInPlace(function, "dx", args.dx_stride, "dy", args.dy_stride, args.dx == args.dy);
  const Array dgain = VectorArray("dgain", args.dgain, cols);
  const Array dbias = VectorArray("dbias", args.dbias, cols);
  CheckAffine(function, recipe, {gain, dgain, dbias});
  CheckNotNull(function, {dy});
  CheckSaved(function, recipe, x, mean, mean_lo, rstd);
  if (args.dsum != nullptr && args.dx == nullptr) {
    Fail(function, "dsum", "be null without dx", "an address");
  }
  CheckAligned(function, {dy, x, gain, mean, mean_lo, rstd, dsum, dx, dgain, dbias});
  CheckDisjoint(function, {dx, dgain, dbias}, {dy, x, gain, mean, mean_lo, rstd, dsum});
  return args;
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ROWS_CHECK_H_
