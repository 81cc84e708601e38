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
  OnDevice<T> x(p.x, layout.offset), kept_x(p.x, layout.offset), dy(p.dy, layout.offset);
  OnDevice<T> y(out.y, layout.offset), dx(out.dx, layout.offset);
  OnDevice<T> gain(p.gain, layout.offset), bias(p.bias, layout.offset);
  OnDevice<T> dgain(out.dgain, layout.offset), dbias(out.dbias, layout.offset);
  OnDevice<T> mean(out.mean), mean_lo(out.mean_lo), rstd(out.rstd);
  OnDevice<T> offset(out.offset), deviation(out.deviation);
  OnDevice<OnlineState> state(std::vector<OnlineState>(1));
  OnDevice<double> weights(alphas);
  OnDevice<char> space(std::vector<char>(
      static_cast<size_t>(cuda::OnlineNormWorkspaceBytes<T>(p.rows, p.cols)), -1));
  cuda::OnlineNormOptions options = {
      .alpha = p.alpha, .workspace = space.data(), .workspace_bytes = space.bytes()};
  if (cases == 0) cases = p.rows;
  for (int64_t first = 0; first < p.rows; first += cases) {
    const int64_t at = first * p.cols;
    options.alphas = alphas.empty() ? nullptr : weights.data() + first;
    cuda::OnlineNormForward<T>({.rows = std::min(cases, p.rows - first),
                                .cols = p.cols,
                                .x = x.data() + at,
                                .gain = gain.data(),
                                .bias = bias.data(),
                                .y = (layout.in_place ? x : y).data() + at,
                                .mean = mean.data() + first,
                                .mean_lo = mean_lo.data() + first,
                                .rstd = rstd.data() + first,
                                .offset = offset.data() + first,
                                .deviation = deviation.data() + first},
                               state.data(), options);
  }
  options.alphas = alphas.empty() ? nullptr : weights.data();
  cuda::OnlineNormBackward<T>({.rows = p.rows,
                               .cols = p.cols,
                               .dy = dy.data(),
                               .x = kept_x.data(),
                               .gain = gain.data(),
                               .mean = mean.data(),
                               .mean_lo = mean_lo.data(),
                               .rstd = rstd.data(),
                               .offset = offset.data(),
                               .deviation = deviation.data(),
                               .dx = (layout.in_place ? dy : dx).data(),
                               .dgain = dgain.data(),
                               .dbias = dbias.data()},
                              options);
  out.y = (layout.in_place ? x : y).Get();
  out.dx = (layout.in_place ? dy : dx).Get();
  out.mean = mean.Get();
  out.mean_lo = mean_lo.Get();
  out.rstd = rstd.Get();
  out.offset = offset.Get();
  out.deviation = deviation.Get();
  out.dgain = dgain.Get();
  out.dbias = dbias.Get();
  out.state_mean = state.Get()[0].mean;
  out.state_deviation = state.Get()[0].deviation;
  return out;
}

}  // namespace planish::tests::online_norm

#endif  // PLANISH_SRC_NORM_CUDA_ONLINE_NORM_TESTING_H_
