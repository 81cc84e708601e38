#include "planish/channel_norm.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "src/norm/channels/channel_norm_cpu.h"
#include "src/norm/check.h"
#include "src/norm/element_types.h"
#include "src/norm/params.h"
#include "src/norm/recipe.h"

namespace planish {
inline namespace PLANISH_API {

using internal::Output;
using internal::Recipe;

template <class T, class P>
void ChannelNormForward(Norm norm, const ChannelNormForwardArgs<T, P>& args,
                        const NormOptions& options) {
  constexpr const char* kFunction = "ChannelNormForward";
  using C = Compute<T>;
  Recipe recipe = internal::RecipeOf(norm);
  const int64_t total = internal::CheckChannelNorm(kFunction, recipe, args, options);
  const int64_t channels = args.channels, positions = args.batch * args.spatial;
  if (total == 0) {
    internal::FillEach({args.mean, args.mean_lo, args.rstd}, positions,
                       std::numeric_limits<C>::quiet_NaN());
    return;
  }
  if (args.spatial == 1) {  // rows
    NormForward(norm, internal::AsRows(args), options);
    return;
  }
  if (recipe.centre && !args.gain && !args.bias) recipe = internal::WithoutParams(recipe);
  const bool affine = recipe.output == Output::kAffine;
  const internal::Params<T, P> gains(args.gain, /*rows=*/0, channels, 1, affine);
  const internal::Params<T, P> biases(args.bias, /*rows=*/0, channels, 0, affine);
  const internal::ChannelsForward<T> call = {internal::WithParams(args, gains, biases),
                                             internal::SettingsOf<C>(recipe, options)};
  internal::ForwardChannels(call, options.parallel_for);
}

template <class T, class P>
void ChannelNormBackward(Norm norm, const ChannelNormBackwardArgs<T, P>& args,
                         const NormOptions& options) {
  constexpr const char* kFunction = "ChannelNormBackward";
  using C = Compute<T>;
  Recipe recipe = internal::RecipeOf(norm);
  const int64_t total = internal::CheckChannelNorm(kFunction, recipe, args, options);
  const int64_t channels = args.channels;
  if (total == 0) {
    internal::FillEach({args.dgain, args.dbias}, channels, P{});
    return;
  }
  if (args.spatial == 1) {  // rows
    NormBackward(norm, internal::AsRows(args), options);
    return;
  }
  const bool sums = internal::HasParamGradients(args);
  if (!sums && args.dx == nullptr) return;
  if (!args.gain && !sums) recipe = internal::WithoutParams(recipe);
  const internal::Params<T, P> gains(args.gain, /*rows=*/0, channels, 1,
                                     recipe.output == Output::kAffine);
  internal::ParamGradients<T, P> dgains(args.dgain, channels, sums),
      dbiases(args.dbias, channels, sums);
  const internal::ChannelsBackward<T> call = {
      internal::WithParams(args, recipe, gains, dgains, dbiases),
      internal::SettingsOf<C>(recipe, options)};
  internal::BackwardChannels(call, options.parallel_for);
  dgains.Finish();
  dbiases.Finish();
}

#define PLANISH_INSTANTIATE(T, P)                                                                  \
  template void ChannelNormForward(Norm, const ChannelNormForwardArgs<T, P>&, const NormOptions&); \
  template void ChannelNormBackward(Norm, const ChannelNormBackwardArgs<T, P>&, const NormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish
