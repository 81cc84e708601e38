#include "planish/norm.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "src/norm/check.h"
#include "src/norm/element_types.h"
#include "src/norm/params.h"
#include "src/norm/recipe.h"
#include "src/norm/rows/cpu.h"

namespace planish {
inline namespace PLANISH_API {
template <class T, class P>
void NormForward(Norm norm, const NormForwardArgs<T, P>& arguments, const NormOptions& options) {
  using C = Compute<T>;
  internal::Recipe recipe = internal::RecipeOf(norm);
  const auto args = internal::CheckRowNorm("NormForward", recipe, arguments, options);
  const int64_t rows = args.rows, params = args.sets * args.cols;
  if (rows == 0) return;
  if (args.cols == 0) {
    internal::FillEach({args.mean, args.mean_lo, args.rstd, args.row_scale}, rows,
                       std::numeric_limits<C>::quiet_NaN());
    return;
  }
  const bool affine = recipe.output == internal::Output::kAffine;
  const bool cast = affine && args.cast_before_gain && sizeof(T) == 2;
  const bool has_product = affine && (args.gain || args.bias || !recipe.centre || cast);
  if (!has_product || (cast && recipe.centre)) recipe = internal::WithoutParams(recipe);
  const internal::Params<T, P> gains(args.gain, rows, params, 1, has_product);
  const internal::Params<T, P> biases(args.bias, rows, params, 0, has_product);
  internal::RowsForward<T> call = {internal::WithParams(args, gains, biases),
                                   internal::SettingsOf<C>(recipe, options)};
  const bool needs_ones = cast && recipe.output == internal::Output::kAffine;
  const internal::Params<T, P> ones(nullptr, rows, params, 1, needs_ones);
  const internal::Params<T, P> zeros(nullptr, rows, params, 0, needs_ones);
  if (cast) {
    call.cast_gain = std::exchange(call.gain, ones.data());
    call.cast_bias = std::exchange(call.bias, zeros.data());
  }
  call.use_nt_stores = !options.new_outputs;
  internal::ForwardMatrix(call, options.parallel_for);
}

template <class T, class P>
void NormBackward(Norm norm, const NormBackwardArgs<T, P>& arguments, const NormOptions& options) {
  using C = Compute<T>;
  internal::Recipe recipe = internal::RecipeOf(norm);
  const auto args = internal::CheckRowNorm("NormBackward", recipe, arguments, options);
  const int64_t rows = args.rows, params = args.sets * args.cols;
  if (rows == 0 || args.cols == 0) {
    internal::FillEach({args.dgain, args.dbias}, params, P{});
    return;
  }
  const bool columns = internal::HasParamGradients(args);
  if (!args.gain && !columns && !args.gate) recipe = internal::WithoutParams(recipe);
  const internal::Params<T, P> gains(args.gain, rows, params, 1,
                                     recipe.output == internal::Output::kAffine);
  const internal::Params<T, P> biases(args.bias, rows, params, 0, args.gate != nullptr);
  internal::ParamGradients<T, P> dgains(args.dgain, params, columns),
      dbiases(args.dbias, params, columns);
  internal::RowsBackward<T> call = {internal::WithParams(args, recipe, gains, dgains, dbiases),
                                    internal::SettingsOf<C>(recipe, options)};
  call.bias = biases.data();
  call.use_nt_stores = !options.new_outputs;
  internal::BackwardMatrix(call, options.parallel_for);
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
