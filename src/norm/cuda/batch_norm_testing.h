#ifndef PLANISH_SRC_NORM_CUDA_BATCH_NORM_TESTING_H_
#define PLANISH_SRC_NORM_CUDA_BATCH_NORM_TESTING_H_

#include <vector>

#include "planish/cuda.h"
#include "src/norm/channels/batch_norm_testing.h"
#include "src/norm/cuda/norm_testing.h"

// Results of a problem from a GPU.
namespace planish::tests::batch_norm {

/// Runs forward, then backward, on the device.
template <class T, class P>
Result<T, P> ApplyOnDevice(const Problem<T, P>& p, const Layout& layout = {}) {
  Result<T, P> out(p);
  const auto& [batch, channels, spatial] = p.shape;
  const WithWorkspace options(cuda::BatchNormOptions{.eps = p.options.eps,
                                                     .unbiased = p.options.unbiased,
                                                     .momentum = p.options.momentum,
                                                     .batches = p.options.batches},
                              cuda::BatchNormWorkspaceBytes<T>(batch, channels, spatial));
  RunOnDevice(ForwardArgs(p, out), layout,
              [&](const auto& args) { cuda::BatchNormForward(args, options); });
  RunOnDevice(BackwardArgs(p, out), layout,
              [&](const auto& args) { cuda::BatchNormBackward(args, options); });
  return out;
}

}  // namespace planish::tests::batch_norm

#endif  // PLANISH_SRC_NORM_CUDA_BATCH_NORM_TESTING_H_
