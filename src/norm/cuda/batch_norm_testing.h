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
  const cuda::BatchNormOptions options = {.eps = p.options.eps,
                                          .unbiased = p.options.unbiased,
                                          .momentum = p.options.momentum,
                                          .batches = p.options.batches};
  RunOnDevice(ForwardArgs(p, out), layout, [&](const auto& args) {
    cuda::BatchNormForward(args, WithWorkspace(options, args));
  });
  RunOnDevice(BackwardArgs(p, out), layout, [&](const auto& args) {
    cuda::BatchNormBackward(args, WithWorkspace(options, args));
  });
  return out;
}

}  // namespace planish::tests::batch_norm

#endif  // PLANISH_SRC_NORM_CUDA_BATCH_NORM_TESTING_H_
