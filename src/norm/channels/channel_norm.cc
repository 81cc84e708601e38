#include "planish/channel_norm.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "src/norm/channels/channel_norm_cpu.h"
#include "src/norm/check.h"
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
  const Recipe recipe = internal::RecipeOf(norm);
  const int64_t total = internal::CheckChannelNorm(kFunction, recipe, args, options);
  const int64_t channels = args.channels, positions = args.batch * args.spatial;
  if (total == 0) {
    internal::FillEach({args.mean, args.mean_lo, args.rstd}, positions,
                       std::numeric_limits<C>::quiet_NaN());
    return;
  }
  if (args.spatial == 1) {  // rows
    NormForward<T, P>(norm,
                      {.rows = args.batch,
                       .cols = channels,
                       .x = args.x,
                       .gain = args.gain,
                       .bias = args.bias,
                       .y = args.y,
                       .mean = args.mean,
                       .mean_lo = args.mean_lo,
                       .rstd = args.rstd},
                      options);
    return;
  }
  internal::ChannelsForward<T> call;
  call.recipe = recipe;
  if (recipe.output == Output::kAffine && recipe.centre && !args.gain && !args.bias) {
    call.recipe.output = Output::kIdentity;
  }
  const bool affine = call.recipe.output == Output::kAffine;
  const internal::Params<T, P> gains(args.gain, /*rows=*/0, channels, 1, affine);
  const internal::Params<T, P> biases(args.bias, /*rows=*/0, channels, 0, affine);
  call.eps = options.eps;
  call.scale = static_cast<C>(options.scale);
  call.slope = static_cast<C>(options.slope);
  call.batch = args.batch;
  call.channels = channels;
  call.spatial = args.spatial;
  call.x = args.x;
  call.gain = gains.data();
  call.bias = biases.data();
  call.y = args.y;
  call.mean = args.mean;
  call.mean_lo = args.mean_lo;
  call.rstd = args.rstd;
  internal::ForwardChannels(call, options.parallel_for);
}

template <class T, class P>
void ChannelNormBackward(Norm norm, const ChannelNormBackwardArgs<T, P>& args,
                         const NormOptions& options) {
  constexpr const char* kFunction = "ChannelNormBackward";
  using C = Compute<T>;
  const Recipe recipe = internal::RecipeOf(norm);
  const int64_t total = internal::CheckChannelNorm(kFunction, recipe, args, options);
  const int64_t channels = args.channels;
  if (total == 0) {
    internal::FillEach({args.dgain, args.dbias}, channels, P{});
    return;
  }
  if (args.spatial == 1) {  // rows
    NormBackward<T, P>(norm,
                       {.rows = args.batch,
                        .cols = channels,
                        .dy = args.dy,
                        .x = args.x,
                        .gain = args.gain,
                        .mean = args.mean,
                        .mean_lo = args.mean_lo,
                        .rstd = args.rstd,
                        .dx = args.dx,
                        .dgain = args.dgain,
                        .dbias = args.dbias},
                       options);
    return;
  }
  const bool sums = args.dgain || args.dbias;
  if (!sums && args.dx == nullptr) return;
  internal::ChannelsBackward<T> call;
  call.recipe = recipe;
  if (recipe.output == Output::kAffine && !args.gain && !sums) {
    call.recipe.output = Output::kIdentity;
  }
  const internal::Params<T, P> gains(args.gain, /*rows=*/0, channels, 1,
                                     call.recipe.output == Output::kAffine);
  internal::ParamGradients<T, P> dgains(args.dgain, channels, sums),
      dbiases(args.dbias, channels, sums);
  call.eps = options.eps;
  call.scale = static_cast<C>(options.scale);
  call.slope = static_cast<C>(options.slope);
  call.batch = args.batch;
  call.channels = channels;
  call.spatial = args.spatial;
  call.dy = args.dy;
  call.x = args.x;
  call.gain = gains.data();
  call.mean = recipe.centre ? args.mean : nullptr;
  call.mean_lo = recipe.centre ? args.mean_lo : nullptr;
  call.rstd = args.rstd;
  call.dx = args.dx;
  internal::BackwardChannels(call, dgains.data(), dbiases.data(), options.parallel_for);
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
