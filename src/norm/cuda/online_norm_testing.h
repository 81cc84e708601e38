#ifndef PLANISH_SRC_NORM_CUDA_ONLINE_NORM_TESTING_H_
#define PLANISH_SRC_NORM_CUDA_ONLINE_NORM_TESTING_H_

#include <cstdint>
#include <vector>

#include "planish/cuda.h"
#include "src/norm/cuda/norm_testing.h"
#include "src/norm/online/testing.h"

// Results of a problem from a GPU.
namespace planish::tests::online_norm {

/// Runs forward in calls of `cases` cases, then backward in one call, on the device. `alphas` has
/// one element for each case, or is empty.
template <class T>
Result<T> ApplyOnDevice(const Problem<T>& p, const Layout& layout = {}, int64_t cases = 0,
                        const std::vector<double>& alphas = {}) {
  Result<T> out(p);
  OnDevice<OnlineState> state(std::vector<OnlineState>(1));
  OnDevice<double> weights(alphas);
  cuda::OnlineNormOptions options = {.alpha = p.alpha};
  if (cases == 0) cases = p.rows;
  RunOnDevice(ForwardArgs(p, out), layout, [&](OnlineNormForwardArgs<T> args) {
    using A = OnlineNormForwardArgs<T>;
    for (int64_t first = 0; first < p.rows; first += cases) {
      args.rows = std::min(cases, p.rows - first);
      options.alphas = alphas.empty() ? nullptr : weights.data() + first;
      cuda::OnlineNormForward(args, state.data(), WithWorkspace(options, args));
      args.x += cases * p.cols;
      args.y += cases * p.cols;
      for (const auto member : {&A::mean, &A::mean_lo, &A::rstd, &A::offset, &A::deviation}) {
        args.*member += cases;
      }
    }
  });
  options.alphas = alphas.empty() ? nullptr : weights.data();
  RunOnDevice(BackwardArgs(p, out), layout, [&](const auto& args) {
    cuda::OnlineNormBackward(args, WithWorkspace(options, args));
  });
  out.state_mean = state.Get()[0].mean;
  out.state_deviation = state.Get()[0].deviation;
  return out;
}

}  // namespace planish::tests::online_norm

#endif  // PLANISH_SRC_NORM_CUDA_ONLINE_NORM_TESTING_H_
