#include "planish/norm.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "src/norm/check.h"
#include "src/norm/params.h"
#include "src/norm/recipe.h"
#include "src/norm/rows/cpu.h"

namespace planish {
inline namespace PLANISH_API {
template <class T, class P>
void NormForward(Norm norm, const NormForwardArgs<T, P>& arguments, const NormOptions& options) {
  using C = Compute<T>;
  const internal::Recipe recipe = internal::RecipeOf(norm);
  const auto args = internal::CheckRowNorm("NormForward", recipe, arguments, options);
  const int64_t rows = args.rows, cols = args.cols;
  if (rows == 0) return;
  if (cols == 0) {
    internal::FillEach({args.mean, args.mean_lo, args.rstd}, rows,
                       std::numeric_limits<C>::quiet_NaN());
    return;
  }
  internal::RowsForward<T> call;
  call.recipe = recipe;
  if (recipe.output == internal::Output::kAffine && recipe.centre && !args.gain && !args.bias) {
    call.recipe.output = internal::Output::kIdentity;
  }
  const bool affine = call.recipe.output == internal::Output::kAffine;
  const internal::Params<T, P> gains(args.gain, rows, cols, 1, affine);
  const internal::Params<T, P> biases(args.bias, rows, cols, 0, affine);
  call.eps = options.eps;
  call.scale = static_cast<C>(options.scale);
  call.slope = static_cast<C>(options.slope);
  call.rows = rows;
  call.cols = cols;
  call.x = args.x;
  call.x_stride = args.x_stride;
  call.gain = gains.data();
  call.bias = biases.data();
  call.y = args.y;
  call.y_stride = args.y_stride;
  call.mean = args.mean;
  call.mean_lo = args.mean_lo;
  call.rstd = args.rstd;
  call.residual = args.residual;
  call.residual_stride = args.residual_stride;
  call.sum = args.sum;
  call.sum_stride = args.sum_stride;
  call.stream = !options.new_outputs;
  internal::ForwardMatrix(call, options.parallel_for);
}

template <class T, class P>
void NormBackward(Norm norm, const NormBackwardArgs<T, P>& arguments, const NormOptions& options) {
  using C = Compute<T>;
  const internal::Recipe recipe = internal::RecipeOf(norm);
  const auto args = internal::CheckRowNorm("NormBackward", recipe, arguments, options);
  const int64_t rows = args.rows, cols = args.cols;
  if (rows == 0 || cols == 0) {
    internal::FillEach({args.dgain, args.dbias}, cols, P{});
    return;
  }
  const bool columns = args.dgain || args.dbias;
  internal::RowsBackward<T> call;
  call.recipe = recipe;
  if (recipe.output == internal::Output::kAffine && !args.gain && !columns) {
    call.recipe.output = internal::Output::kIdentity;
  }
  const internal::Params<T, P> gains(args.gain, rows, cols, 1,
                                     call.recipe.output == internal::Output::kAffine);
  internal::ParamGradients<T, P> dgains(args.dgain, cols, columns),
      dbiases(args.dbias, cols, columns);
  call.eps = options.eps;
  call.scale = static_cast<C>(options.scale);
  call.slope = static_cast<C>(options.slope);
  call.rows = rows;
  call.cols = cols;
  call.dy = args.dy;
  call.dy_stride = args.dy_stride;
  call.x = args.x;
  call.x_stride = args.x_stride;
  call.gain = gains.data();
  call.mean = recipe.centre ? args.mean : nullptr;
  call.mean_lo = recipe.centre ? args.mean_lo : nullptr;
  call.rstd = args.rstd;
  call.dx = args.dx;
  call.dx_stride = args.dx_stride;
  call.dsum = args.dsum;
  call.dsum_stride = args.dsum_stride;
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

}  // namespace PLANISH_API
}  // namespace planish
