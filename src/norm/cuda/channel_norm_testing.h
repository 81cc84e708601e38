#ifndef PLANISH_SRC_NORM_CUDA_CHANNEL_NORM_TESTING_H_
#define PLANISH_SRC_NORM_CUDA_CHANNEL_NORM_TESTING_H_

#include <vector>

#include "planish/cuda.h"
#include "src/norm/channels/channel_norm_testing.h"
#include "src/norm/cuda/norm_testing.h"

// Results of a problem from a GPU.
namespace planish::tests::channel_norm {

/// Runs forward, then backward, on the device.
template <class T, class P>
Result<T, P> ApplyOnDevice(const Problem<T, P>& p, const Layout& layout = {}) {
  Result<T, P> out(p);
  const internal::Recipe recipe = internal::RecipeOf(p.norm);
  const cuda::NormOptions options = {
      .eps = p.options.eps, .scale = p.options.scale, .slope = p.options.slope};
  RunOnDevice(
      ForwardArgs(p, out), layout,
      [&](const auto& args) {
        cuda::ChannelNormForward(p.norm, args, WithWorkspace(options, args));
      },
      recipe);
  RunOnDevice(
      BackwardArgs(p, out), layout,
      [&](const auto& args) {
        cuda::ChannelNormBackward(p.norm, args, WithWorkspace(options, args));
      },
      recipe);
  return out;
}

}  // namespace planish::tests::channel_norm

#endif  // PLANISH_SRC_NORM_CUDA_CHANNEL_NORM_TESTING_H_
