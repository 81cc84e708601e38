#ifndef PLANISH_SRC_NORM_CUDA_POINTWISE_NORM_TESTING_H_
#define PLANISH_SRC_NORM_CUDA_POINTWISE_NORM_TESTING_H_

#include <vector>

#include "planish/cuda.h"
#include "src/norm/cuda/norm_testing.h"
#include "src/norm/pointwise/testing.h"

// Results of a problem from a GPU.
namespace planish::tests::pointwise {

/// Runs forward, then backward, on the device.
template <class T, class P>
Result<T, P> ApplyOnDevice(const Problem<T, P>& p, const Layout& layout = {}) {
  Result<T, P> out(p);
  const cuda::PointwiseNormOptions options;
  RunOnDevice(ForwardArgs(p, out), layout, [&](const auto& args) {
    cuda::PointwiseNormForward(p.function, args, WithWorkspace(options, args));
  });
  RunOnDevice(BackwardArgs(p, out), layout, [&](const auto& args) {
    cuda::PointwiseNormBackward(p.function, args, WithWorkspace(options, args));
  });
  return out;
}

}  // namespace planish::tests::pointwise

#endif  // PLANISH_SRC_NORM_CUDA_POINTWISE_NORM_TESTING_H_
