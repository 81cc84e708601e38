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
  using C = Compute<T>;
  const Shape& shape = p.shape;
  Result<T, P> out(p);
  OnDevice<T> x(p.x, layout.offset), kept_x(p.x, layout.offset), dy(p.dy, layout.offset);
  OnDevice<T> y(out.y, layout.offset), dx(out.dx, layout.offset);
  OnDevice<P> gain(p.gain, layout.offset), bias(p.bias, layout.offset);
  OnDevice<P> dgain(out.dgain, layout.offset), dbias(out.dbias, layout.offset);
  OnDevice<C> mean(out.mean), mean_lo(out.mean_lo), rstd(out.rstd);
  OnDevice<char> space(std::vector<char>(static_cast<size_t>(cuda::ChannelNormWorkspaceBytes<T>(
                                             shape.batch, shape.channels, shape.spatial)),
                                         -1));
  const bool affine = IsAffine(p.norm);
  const cuda::NormOptions options = {.eps = p.options.eps,
                                     .scale = p.options.scale,
                                     .slope = p.options.slope,
                                     .workspace = space.data(),
                                     .workspace_bytes = space.bytes()};
  cuda::ChannelNormForward<T, P>(p.norm,
                                 {.batch = shape.batch,
                                  .channels = shape.channels,
                                  .spatial = shape.spatial,
                                  .x = x.data(),
                                  .gain = gain.OrNull(),
                                  .bias = bias.OrNull(),
                                  .y = (layout.in_place ? x : y).data(),
                                  .mean = mean.data(),
                                  .mean_lo = mean_lo.data(),
                                  .rstd = rstd.data()},
                                 options);
  cuda::ChannelNormBackward<T, P>(p.norm,
                                  {.batch = shape.batch,
                                   .channels = shape.channels,
                                   .spatial = shape.spatial,
                                   .dy = dy.data(),
                                   .x = kept_x.data(),
                                   .gain = gain.OrNull(),
                                   .mean = mean.data(),
                                   .mean_lo = mean_lo.data(),
                                   .rstd = rstd.data(),
                                   .dx = (layout.in_place ? dy : dx).data(),
                                   .dgain = affine ? dgain.data() : nullptr,
                                   .dbias = affine ? dbias.data() : nullptr},
                                  options);
  out.y = (layout.in_place ? x : y).Get();
  out.dx = (layout.in_place ? dy : dx).Get();
  out.mean = mean.Get();
  out.mean_lo = mean_lo.Get();
  out.rstd = rstd.Get();
  out.dgain = dgain.Get();
  out.dbias = dbias.Get();
  return out;
}

}  // namespace planish::tests::channel_norm

#endif  // PLANISH_SRC_NORM_CUDA_CHANNEL_NORM_TESTING_H_
