// The layout of the dispatch table below, as libtorch is built for x86-64.
#ifdef __x86_64__
#define HAVE_AVX2_CPU_DEFINITION
#define HAVE_AVX512_CPU_DEFINITION
#endif

#include <ATen/core/Tensor.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include "lab/bench/contestants.h"

namespace planish::bench {

namespace {

at::ScalarType ScalarType(Type type) {
  switch (type) {
    case Type::kDouble:
      return at::kDouble;
    case Type::kBFloat16:
      return at::kBFloat16;
    case Type::kFloat16:
      return at::kHalf;
    default:
      return at::kFloat;
  }
}

// Returns a tensor view of an array.
at::Tensor View(const void* data, at::IntArrayRef sizes, Type type) {
  // Tensors have no const; the inputs are only read.
  return at::from_blob(const_cast<void*>(data), sizes, at::TensorOptions(ScalarType(type)));
}

}  // namespace

// Calls the kernel with outputs, which excludes the operators' allocations and the output copies of
// native_layer_norm.out.
Contestant MakeAten(const std::string& method, const Case& c, const Arrays& arrays) {
#ifdef __x86_64__
  const c10::InferenceMode inference;  // no version counters
  const at::Tensor x = View(arrays.x, {c.rows, c.cols}, c.type);
  const Type parameter = ParameterType(c.type);
  // The kernels accept undefined tensors for a norm without gain and bias.
  if (c.spatial != 1 || (method != "layer" && method != "layer-simple")) {
    return {.absent = "has no kernel for this norm"};
  }
  const auto parameters = [&](const void* data) {
    return method == "layer" ? View(data, {c.cols}, parameter) : at::Tensor();
  };
  const at::Tensor gain = parameters(arrays.gain);
  at::Tensor out = View(arrays.out, {c.rows, c.cols}, c.type);
  if (c.direction == Direction::kForward) {
    const at::Tensor bias = parameters(arrays.bias);
    return {.call = [=]() mutable {
      at::native::LayerNormKernel(at::kCPU, x, gain, bias, x.size(0), x.size(1), kEps, &out,
                                  nullptr, nullptr);
    }};
  }
  const at::Tensor dy = View(arrays.dy, {c.rows, c.cols}, c.type);
  const at::Tensor mean = View(arrays.mean, {c.rows}, parameter);
  const at::Tensor rstd = View(arrays.rstd, {c.rows}, parameter);
  at::Tensor dgain = parameters(arrays.dgain);
  at::Tensor dbias = parameters(arrays.dbias);
  return {.call = [=]() mutable {
    at::native::LayerNormBackwardKernel(at::kCPU, dy, x, mean, rstd, gain, x.size(0), x.size(1),
                                        &out, &dgain, &dbias);
  }};
#else
  (void)method, (void)c, (void)arrays;
  return {.absent = "its kernels are called on x86-64 only"};
#endif
}

}  // namespace planish::bench
