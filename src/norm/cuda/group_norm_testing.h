#ifndef PLANISH_SRC_NORM_CUDA_GROUP_NORM_TESTING_H_
#define PLANISH_SRC_NORM_CUDA_GROUP_NORM_TESTING_H_

#include "planish/cuda.h"
#include "src/norm/channels/group_norm_testing.h"
#include "src/norm/cuda/norm_testing.h"

// Results of a problem from a GPU.
namespace planish::tests::group_norm {

/// Runs forward, then backward, on the device.
template <class T, class P>
Result<T, P> ApplyOnDevice(const Problem<T, P>& p, const Layout& layout = {}) {
  Result<T, P> out(p);
  const cuda::GroupNormOptions options = {.eps = p.options.eps};
  RunOnDevice(ForwardArgs(p, out), layout, [&](const auto& args) {
    cuda::GroupNormForward(args, WithWorkspace(options, args));
  });
  RunOnDevice(BackwardArgs(p, out), layout, [&](const auto& args) {
    cuda::GroupNormBackward(args, WithWorkspace(options, args));
  });
  return out;
}

}  // namespace planish::tests::group_norm

#endif  // PLANISH_SRC_NORM_CUDA_GROUP_NORM_TESTING_H_
