#include "planish/channel_norm.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "src/base/check.h"
#include "src/norm/channel_norm_cpu.h"
#include "src/norm/columns_check.h"
#include "src/norm/params.h"
#include "src/norm/recipe.h"
#include "src/norm/recipe_check.h"

namespace planish {

using internal::Array;
using internal::Output;
using internal::Recipe;
using internal::VectorArray;

template <class T, class P>
void ChannelNormForward(Norm norm, const ChannelNormForwardArgs<T, P>& args,
                        const NormOptions& options) {
  constexpr const char* kFunction = "ChannelNormForward";
  using C = Compute<T>;
  const Recipe recipe = internal::RecipeOf(norm);
  const int64_t channels = args.channels;
  const int64_t total = internal::CheckChannels<T>(kFunction, args.batch, channels, args.spatial);
  const int64_t positions = args.batch * args.spatial;
  internal::CheckOptions(kFunction, recipe, options, "channels", channels, positions);
  const Array x = VectorArray("x", args.x, total);
  const Array gain = VectorArray("gain", args.gain, channels);
  const Array bias = VectorArray("bias", args.bias, channels);
  Array y = VectorArray("y", args.y, total);
  y.may_be = args.x;
  const Array mean = VectorArray("mean", args.mean, positions);
  const Array mean_lo = VectorArray("mean_lo", args.mean_lo, positions);
  const Array rstd = VectorArray("rstd", args.rstd, positions);
  internal::CheckAffine(kFunction, recipe, {gain, bias});
  internal::CheckNotNull(kFunction, {x, y});
  internal::CheckAligned(kFunction, {x, gain, bias, y, mean, mean_lo, rstd});
  internal::CheckApart(kFunction, {y, mean, mean_lo, rstd}, {x, gain, bias});

  if (total == 0) {
    internal::FillEach({args.mean, args.mean_lo, args.rstd}, positions,
                       std::numeric_limits<C>::quiet_NaN());
    return;
  }
  if (args.spatial == 1) {  // these are rows
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
  const int64_t channels = args.channels;
  const int64_t total = internal::CheckChannels<T>(kFunction, args.batch, channels, args.spatial);
  const int64_t positions = args.batch * args.spatial;
  internal::CheckOptions(kFunction, recipe, options, "channels", channels, positions);
  const Array dy = VectorArray("dy", args.dy, total);
  const Array x = VectorArray("x", args.x, total);
  const Array gain = VectorArray("gain", args.gain, channels);
  const Array mean = VectorArray("mean", args.mean, positions);
  const Array mean_lo = VectorArray("mean_lo", args.mean_lo, positions);
  const Array rstd = VectorArray("rstd", args.rstd, positions);
  Array dx = VectorArray("dx", args.dx, total);
  dx.may_be = args.dy;
  const Array dgain = VectorArray("dgain", args.dgain, channels);
  const Array dbias = VectorArray("dbias", args.dbias, channels);
  internal::CheckAffine(kFunction, recipe, {gain, dgain, dbias});
  internal::CheckNotNull(kFunction, {dy});
  internal::CheckSaved(kFunction, recipe, x, mean, mean_lo, rstd);
  internal::CheckAligned(kFunction, {dy, x, gain, mean, mean_lo, rstd, dx, dgain, dbias});
  internal::CheckApart(kFunction, {dx, dgain, dbias}, {dy, x, gain, mean, mean_lo, rstd});

  if (total == 0) {
    internal::FillEach({args.dgain, args.dbias}, channels, P{});
    return;
  }
  if (args.spatial == 1) {  // these are rows
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
  internal::ParamSums<T, P> dgains(args.dgain, channels, sums), dbiases(args.dbias, channels, sums);
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

}  // namespace planish
