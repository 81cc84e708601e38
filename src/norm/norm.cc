#include "planish/norm.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "src/base/check.h"
#include "src/norm/cpu.h"
#include "src/norm/params.h"
#include "src/norm/recipe.h"
#include "src/norm/recipe_check.h"

namespace planish {
namespace {

using internal::Array;
using internal::MatrixArray;
using internal::Output;
using internal::Recipe;
using internal::VectorArray;

/// An output that may be an input must lie like it.
void CheckInPlace(const char* function, const char* output, int64_t output_stride,
                  const char* input, int64_t input_stride, bool same) {
  if (same && output_stride != input_stride) {
    internal::Fail(function, std::string(output) + "_stride",
                   "be that of " + std::string(input) + ", " + std::to_string(input_stride) +
                       ", where " + output + " is " + input,
                   std::to_string(output_stride));
  }
}

}  // namespace

template <class T, class P>
void NormForward(Norm norm, const NormForwardArgs<T, P>& args, const NormOptions& options) {
  constexpr const char* kFunction = "NormForward";
  using C = Compute<T>;
  const Recipe recipe = internal::RecipeOf(norm);
  const int64_t rows = args.rows, cols = args.cols;
  internal::CheckShape<T>(kFunction, rows, cols);
  internal::CheckOptions(kFunction, recipe, options, "cols", cols, rows);
  const auto stride = [&](const char* name, int64_t given) {
    return internal::CheckedStride<T>(kFunction, name, given, rows, cols);
  };
  const int64_t x_stride = stride("x_stride", args.x_stride);
  const int64_t y_stride = stride("y_stride", args.y_stride);
  const int64_t residual_stride = stride("residual_stride", args.residual_stride);
  const int64_t sum_stride = stride("sum_stride", args.sum_stride);
  const Array x = MatrixArray("x", args.x, rows, cols, x_stride);
  const Array gain = VectorArray("gain", args.gain, cols);
  const Array bias = VectorArray("bias", args.bias, cols);
  const Array residual = MatrixArray("residual", args.residual, rows, cols, residual_stride);
  Array y = MatrixArray("y", args.y, rows, cols, y_stride);
  Array sum = MatrixArray("sum", args.sum, rows, cols, sum_stride);
  const Array mean = VectorArray("mean", args.mean, rows);
  const Array mean_lo = VectorArray("mean_lo", args.mean_lo, rows);
  const Array rstd = VectorArray("rstd", args.rstd, rows);
  internal::CheckAffine(kFunction, recipe, {gain, bias});
  internal::CheckNotNull(kFunction, {x, y});
  if (args.residual != nullptr) {
    internal::CheckNotNull(kFunction, {sum});
    sum.may_be = args.x;
    sum.may_also_be = args.residual;
    CheckInPlace(kFunction, "sum", sum_stride, "x", x_stride, args.sum == args.x);
    CheckInPlace(kFunction, "sum", sum_stride, "residual", residual_stride,
                 args.sum == args.residual);
  } else if (args.sum != nullptr) {
    internal::Fail(kFunction, "sum", "be null without a residual", "an address");
  } else {
    y.may_be = args.x;
    CheckInPlace(kFunction, "y", y_stride, "x", x_stride, args.y == args.x);
  }
  internal::CheckAligned(kFunction, {x, gain, bias, residual, y, sum, mean, mean_lo, rstd});
  internal::CheckApart(kFunction, {y, sum, mean, mean_lo, rstd}, {x, gain, bias, residual});

  if (rows == 0) return;
  if (cols == 0) {
    internal::FillEach({args.mean, args.mean_lo, args.rstd}, rows,
                       std::numeric_limits<C>::quiet_NaN());
    return;
  }
  internal::RowsForward<T> call;
  call.recipe = recipe;
  if (recipe.output == Output::kAffine && recipe.centre && !args.gain && !args.bias) {
    call.recipe.output = Output::kIdentity;
  }
  const bool affine = call.recipe.output == Output::kAffine;
  const internal::Params<T, P> gains(args.gain, rows, cols, 1, affine);
  const internal::Params<T, P> biases(args.bias, rows, cols, 0, affine);
  call.eps = options.eps;
  call.scale = static_cast<C>(options.scale);
  call.slope = static_cast<C>(options.slope);
  call.rows = rows;
  call.cols = cols;
  call.x = args.x;
  call.x_stride = x_stride;
  call.gain = gains.data();
  call.bias = biases.data();
  call.y = args.y;
  call.y_stride = y_stride;
  call.mean = args.mean;
  call.mean_lo = args.mean_lo;
  call.rstd = args.rstd;
  call.residual = args.residual;
  call.residual_stride = residual_stride;
  call.sum = args.sum;
  call.sum_stride = sum_stride;
  call.stream = !options.new_outputs;
  internal::ForwardMatrix(call, options.parallel_for);
}

template <class T, class P>
void NormBackward(Norm norm, const NormBackwardArgs<T, P>& args, const NormOptions& options) {
  constexpr const char* kFunction = "NormBackward";
  using C = Compute<T>;
  const Recipe recipe = internal::RecipeOf(norm);
  const int64_t rows = args.rows, cols = args.cols;
  internal::CheckShape<T>(kFunction, rows, cols);
  internal::CheckOptions(kFunction, recipe, options, "cols", cols, rows);
  const auto stride = [&](const char* name, int64_t given) {
    return internal::CheckedStride<T>(kFunction, name, given, rows, cols);
  };
  const int64_t dy_stride = stride("dy_stride", args.dy_stride);
  const int64_t x_stride = stride("x_stride", args.x_stride);
  const int64_t dx_stride = stride("dx_stride", args.dx_stride);
  const int64_t dsum_stride = stride("dsum_stride", args.dsum_stride);
  const Array dy = MatrixArray("dy", args.dy, rows, cols, dy_stride);
  const Array x = MatrixArray("x", args.x, rows, cols, x_stride);
  const Array gain = VectorArray("gain", args.gain, cols);
  const Array mean = VectorArray("mean", args.mean, rows);
  const Array mean_lo = VectorArray("mean_lo", args.mean_lo, rows);
  const Array rstd = VectorArray("rstd", args.rstd, rows);
  const Array dsum = MatrixArray("dsum", args.dsum, rows, cols, dsum_stride);
  Array dx = MatrixArray("dx", args.dx, rows, cols, dx_stride);
  dx.may_be = args.dy;
  CheckInPlace(kFunction, "dx", dx_stride, "dy", dy_stride, args.dx == args.dy);
  const Array dgain = VectorArray("dgain", args.dgain, cols);
  const Array dbias = VectorArray("dbias", args.dbias, cols);
  internal::CheckAffine(kFunction, recipe, {gain, dgain, dbias});
  internal::CheckNotNull(kFunction, {dy});
  internal::CheckSaved(kFunction, recipe, x, mean, mean_lo, rstd);
  if (args.dsum != nullptr && args.dx == nullptr) {
    internal::Fail(kFunction, "dsum", "be null without dx", "an address");
  }
  internal::CheckAligned(kFunction, {dy, x, gain, mean, mean_lo, rstd, dsum, dx, dgain, dbias});
  internal::CheckApart(kFunction, {dx, dgain, dbias}, {dy, x, gain, mean, mean_lo, rstd, dsum});

  if (rows == 0 || cols == 0) {
    internal::FillEach({args.dgain, args.dbias}, cols, P{});
    return;
  }
  const bool columns = args.dgain || args.dbias;
  internal::RowsBackward<T> call;
  call.recipe = recipe;
  if (recipe.output == Output::kAffine && !args.gain && !columns) {
    call.recipe.output = Output::kIdentity;
  }
  const internal::Params<T, P> gains(args.gain, rows, cols, 1,
                                     call.recipe.output == Output::kAffine);
  internal::ParamSums<T, P> dgains(args.dgain, cols, columns), dbiases(args.dbias, cols, columns);
  call.eps = options.eps;
  call.scale = static_cast<C>(options.scale);
  call.slope = static_cast<C>(options.slope);
  call.rows = rows;
  call.cols = cols;
  call.dy = args.dy;
  call.dy_stride = dy_stride;
  call.x = args.x;
  call.x_stride = x_stride;
  call.gain = gains.data();
  call.mean = recipe.centre ? args.mean : nullptr;
  call.mean_lo = recipe.centre ? args.mean_lo : nullptr;
  call.rstd = args.rstd;
  call.dx = args.dx;
  call.dx_stride = dx_stride;
  call.dsum = args.dsum;
  call.dsum_stride = dsum_stride;
  call.stream = !options.new_outputs;
  internal::BackwardMatrix(call, dgains.data(), dbiases.data(), options.parallel_for);
  dgains.Finish();
  dbiases.Finish();
}

#define PLANISH_INSTANTIATE(T, P)                                                    \
  template void NormForward(Norm, const NormForwardArgs<T, P>&, const NormOptions&); \
  template void NormBackward(Norm, const NormBackwardArgs<T, P>&, const NormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish
