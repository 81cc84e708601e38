#include "planish/norm.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

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
    internal::FillEach({args.mean, args.mean_lo, args.rstd}, rows,
                       std::numeric_limits<C>::quiet_NaN());
    return;
  }
  if (recipe.centre && !args.gain && !args.bias) recipe = internal::WithoutParams(recipe);
  const bool affine = recipe.output == internal::Output::kAffine;
  const internal::Params<T, P> gains(args.gain, rows, params, 1, affine);
  const internal::Params<T, P> biases(args.bias, rows, params, 0, affine);
  internal::RowsForward<T> call = {internal::WithParams(args, gains, biases),
                                   internal::SettingsOf<C>(recipe, options)};
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
  if (!args.gain && !columns) recipe = internal::WithoutParams(recipe);
  const internal::Params<T, P> gains(args.gain, rows, params, 1,
                                     recipe.output == internal::Output::kAffine);
  internal::ParamGradients<T, P> dgains(args.dgain, params, columns),
      dbiases(args.dbias, params, columns);
  internal::RowsBackward<T> call = {internal::WithParams(args, recipe, gains, dgains, dbiases),
                                    internal::SettingsOf<C>(recipe, options)};
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
