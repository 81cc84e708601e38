// Beside aten.cc, because the headers of PyTorch's kernels define the same names.
// The layout of the dispatch table below, as libtorch is built for x86-64.
#ifdef __x86_64__
#define HAVE_AVX2_CPU_DEFINITION
#define HAVE_AVX512_CPU_DEFINITION
#endif

#include <ATen/ATen.h>
#include <ATen/native/group_norm.h>

#include <functional>

#include "lab/bench/aten.h"

namespace planish::bench {

Contestant MakeAtenGroups(const Method& method, const Case& c, const Arrays& arrays) {
#ifdef __x86_64__
  const int64_t n = c.rows, channels = c.cols, spatial = c.spatial, groups = GroupsOf(method, c);
  const auto image = [&](const void* data) {
    if (!method.channels_last) return View(data, {n, channels, spatial, 1}, c.type);
    return View(data, {n, spatial, 1, channels}, c.type).permute({0, 3, 1, 2});
  };
  const Type parameter = ParameterType(c.type);
  const at::Tensor x = image(arrays.x), gain = View(arrays.gain, {channels}, parameter);
  const at::Tensor bias = View(arrays.bias, {channels}, parameter);
  const auto options = at::TensorOptions(ScalarType(parameter));
  at::Tensor out = image(arrays.out);
  at::Tensor mean = at::empty({n, groups}, options), rstd = at::empty({n, groups}, options);
  const std::function<void()> forward = [=]() mutable {
    at::native::GroupNormKernel(at::kCPU, x, gain, bias, n, channels, spatial, groups, kEps, out,
                                mean, rstd);
  };
  if (c.direction == Direction::kForward) return {.call = forward};
  forward();
  const at::Tensor dy = image(arrays.dy);
  at::Tensor dgain = View(arrays.dgain, {channels}, parameter);
  at::Tensor dbias = View(arrays.dbias, {channels}, parameter);
  return {.call = [=]() mutable {
    at::native::GroupNormBackwardKernel(at::kCPU, dy, x, mean, rstd, gain, n, channels, spatial,
                                        groups, out, dgain, dbias);
  }};
#else
  (void)method, (void)c, (void)arrays;
  return {.absent = "its kernels are called on x86-64 only"};
#endif
}

}  // namespace planish::bench
