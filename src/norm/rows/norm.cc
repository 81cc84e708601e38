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
#include "src/norm/sets.h"

namespace planish {
inline namespace PLANISH_API {
namespace {

using internal::Recipe;

// The rest of a call with one set and at least one element.
template <class T, class P>
void ForwardSet(Recipe recipe, const NormForwardArgs<T, P>& args, const NormOptions& options) {
  const int64_t rows = args.rows, cols = args.cols;
  if (recipe.centre && !args.gain && !args.bias) recipe = internal::WithoutParams(recipe);
  const bool affine = recipe.output == internal::Output::kAffine;
  const internal::Params<T, P> gains(args.gain, rows, cols, 1, affine);
  const internal::Params<T, P> biases(args.bias, rows, cols, 0, affine);
  internal::RowsForward<T> call = {internal::WithParams(args, gains, biases),
                                   internal::SettingsOf<Compute<T>>(recipe, options)};
  call.use_nt_stores = !options.new_outputs;
  internal::ForwardMatrix(call, options.parallel_for);
}

template <class T, class P>
void BackwardSet(Recipe recipe, const NormBackwardArgs<T, P>& args, const NormOptions& options) {
  const int64_t rows = args.rows, cols = args.cols;
  const bool columns = internal::HasParamGradients(args);
  if (!args.gain && !columns) recipe = internal::WithoutParams(recipe);
  const internal::Params<T, P> gains(args.gain, rows, cols, 1,
                                     recipe.output == internal::Output::kAffine);
  internal::ParamGradients<T, P> dgains(args.dgain, cols, columns),
      dbiases(args.dbias, cols, columns);
  internal::RowsBackward<T> call = {internal::WithParams(args, recipe, gains, dgains, dbiases),
                                    internal::SettingsOf<Compute<T>>(recipe, options)};
  call.use_nt_stores = !options.new_outputs;
  internal::BackwardMatrix(call, options.parallel_for);
  dgains.Finish();
  dbiases.Finish();
}

}  // namespace

template <class T, class P>
void NormForward(Norm norm, const NormForwardArgs<T, P>& arguments, const NormOptions& options) {
  const Recipe recipe = internal::RecipeOf(norm);
  const auto args = internal::CheckRowNorm("NormForward", recipe, arguments, options);
  if (args.rows == 0) return;
  if (args.cols == 0) {
    internal::FillEach({args.mean, args.mean_lo, args.rstd}, args.rows,
                       std::numeric_limits<Compute<T>>::quiet_NaN());
    return;
  }
  for (int64_t set = 0; set < args.sets; ++set) {
    ForwardSet(recipe, internal::SetOf(args, recipe, set), options);
  }
}

template <class T, class P>
void NormBackward(Norm norm, const NormBackwardArgs<T, P>& arguments, const NormOptions& options) {
  const Recipe recipe = internal::RecipeOf(norm);
  const auto args = internal::CheckRowNorm("NormBackward", recipe, arguments, options);
  if (args.rows == 0 || args.cols == 0) {
    internal::FillEach({args.dgain, args.dbias}, args.sets * args.cols, P{});
    return;
  }
  for (int64_t set = 0; set < args.sets; ++set) {
    BackwardSet(recipe, internal::SetOf(args, recipe, set), options);
  }
}

#define PLANISH_INSTANTIATE(T, P)                                                    \
  template void NormForward(Norm, const NormForwardArgs<T, P>&, const NormOptions&); \
  template void NormBackward(Norm, const NormBackwardArgs<T, P>&, const NormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish
