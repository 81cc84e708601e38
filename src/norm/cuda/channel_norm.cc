#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "planish/cuda.h"
#include "src/base/cuda/device.h"
#include "src/norm/check.h"
#include "src/norm/cuda/columns_call.h"
#include "src/norm/cuda/positions.h"

namespace planish::cuda {
inline namespace PLANISH_API {
namespace {

using internal::Output;
using internal::Recipe;
using internal::cuda::ColumnsNeeds;
using internal::cuda::Fill;
using internal::cuda::GradientsOf;
using internal::cuda::ParamsOf;
using internal::cuda::PlanPositions;
using internal::cuda::PositionsWork;

constexpr ColumnsNeeds kColumns = {.maps = false};

template <class C>
internal::cuda::PositionsRecipe<C> RecipeFor(const Recipe& recipe, const NormOptions& options) {
  return {.eps = options.eps,
          .scale = static_cast<C>(options.scale),
          .slope = static_cast<C>(options.slope),
          .centre = recipe.centre,
          .via_mean = recipe.via_mean,
          .via_scale = recipe.via_scale,
          .adaptive = recipe.output == Output::kAdaptive,
          .unbiased = recipe.deviation == internal::Deviation::kUnbiasedPlusEps};
}

template <class T>
PositionsWork WorkOf(int64_t batch, int64_t channels, int64_t spatial,
                     std::initializer_list<internal::cuda::Place> places) {
  return {.batch = batch,
          .channels = channels,
          .spatial = spatial,
          .pack = internal::cuda::PackOf<T>(spatial, places),
          .element_bytes = static_cast<int>(sizeof(T))};
}

}  // namespace

template <class T>
int64_t ChannelNormWorkspaceBytes(int64_t batch, int64_t channels, int64_t spatial) {
  internal::CheckChannels<T>("ChannelNormWorkspaceBytes", batch, channels, spatial);
  if (spatial == 1) {  // rows
    return std::max(NormForwardWorkspaceBytes<T>(batch, channels),
                    NormBackwardWorkspaceBytes<T>(batch, channels, true));
  }
  return internal::cuda::ColumnsBytes<T>({.batch = batch, .channels = channels, .spatial = spatial},
                                         kColumns);
}

template <class T, class P>
void ChannelNormForward(Norm norm, const ChannelNormForwardArgs<T, P>& args,
                        const NormOptions& options) {
  constexpr const char* kFunction = "ChannelNormForward";
  using C = Compute<T>;
  const Recipe recipe = internal::RecipeOf(norm);
  const int64_t total = internal::CheckChannelNorm(kFunction, recipe, args, options);
  if (total == 0) {
    for (C* moments : {args.mean, args.mean_lo, args.rstd}) {
      // All bits set is a NaN.
      Fill(kFunction, moments, 0xff, args.batch * args.spatial * static_cast<int64_t>(sizeof(C)),
           options.stream);
    }
    return;
  }
  if (args.spatial == 1) {  // rows
    NormForward<T, P>(norm,
                      {.rows = args.batch,
                       .cols = args.channels,
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
  const internal::cuda::PositionsForward<T> call = {.batch = args.batch,
                                                    .channels = args.channels,
                                                    .spatial = args.spatial,
                                                    .x = args.x,
                                                    .y = args.y,
                                                    .gain = ParamsOf(args.gain),
                                                    .bias = ParamsOf(args.bias),
                                                    .mean = args.mean,
                                                    .mean_lo = args.mean_lo,
                                                    .rstd = args.rstd,
                                                    .recipe = RecipeFor<C>(recipe, options)};
  const PositionsWork work = WorkOf<T>(args.batch, args.channels, args.spatial, {args.x, args.y});
  RunPositions(kFunction, call, PlanPositions(work), options.stream);
}

template <class T, class P>
void ChannelNormBackward(Norm norm, const ChannelNormBackwardArgs<T, P>& args,
                         const NormOptions& options) {
  constexpr const char* kFunction = "ChannelNormBackward";
  using C = Compute<T>;
  const Recipe recipe = internal::RecipeOf(norm);
  const int64_t total = internal::CheckChannelNorm(kFunction, recipe, args, options);
  if (total == 0) {
    for (P* gradient : {args.dgain, args.dbias}) {
      Fill(kFunction, gradient, 0, args.channels * static_cast<int64_t>(sizeof(P)), options.stream);
    }
    return;
  }
  if (args.spatial == 1) {  // rows
    NormBackward<T, P>(norm,
                       {.rows = args.batch,
                        .cols = args.channels,
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
  internal::cuda::SavedMoments<C> saved = {.rstd = args.rstd};
  if (recipe.centre) saved.mean = args.mean, saved.mean_lo = args.mean_lo;
  // Must precede dx, which can be dy.
  if (args.dgain != nullptr || args.dbias != nullptr) {
    const internal::cuda::PositionGradients<T> call = {
        .arrays = {args.batch, args.channels, args.spatial, args.dy, args.x, nullptr, {}, {}},
        .saved = saved,
        .dgain = GradientsOf(args.dgain),
        .dbias = GradientsOf(args.dbias)};
    internal::cuda::RunColumnsCall(kFunction, call, false, kColumns, options);
  }
  if (args.dx == nullptr) return;
  // Arrays that a norm does not read can be invalid.
  const bool reads_x = recipe.output != Output::kIdentity || recipe.via_scale;
  const T* x = reads_x ? args.x : nullptr;
  if (!reads_x) saved.mean = saved.mean_lo = nullptr;
  const internal::cuda::PositionsBackward<T> call = {.batch = args.batch,
                                                     .channels = args.channels,
                                                     .spatial = args.spatial,
                                                     .dy = args.dy,
                                                     .x = x,
                                                     .dx = args.dx,
                                                     .gain = ParamsOf(args.gain),
                                                     .saved = saved,
                                                     .recipe = RecipeFor<C>(recipe, options)};
  const PositionsWork work =
      WorkOf<T>(args.batch, args.channels, args.spatial, {args.dy, x, args.dx});
  RunPositions(kFunction, call, PlanPositions(work), options.stream);
}

#define PLANISH_INSTANTIATE(T, P)                                                                  \
  template void ChannelNormForward(Norm, const ChannelNormForwardArgs<T, P>&, const NormOptions&); \
  template void ChannelNormBackward(Norm, const ChannelNormBackwardArgs<T, P>&, const NormOptions&);
PLANISH_NORM_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE
#define PLANISH_INSTANTIATE(T) \
  template int64_t ChannelNormWorkspaceBytes<T>(int64_t, int64_t, int64_t);
PLANISH_INSTANTIATE(float)
PLANISH_INSTANTIATE(double)
PLANISH_INSTANTIATE(bfloat16)
PLANISH_INSTANTIATE(float16)
#undef PLANISH_INSTANTIATE

}  // namespace PLANISH_API
}  // namespace planish::cuda
