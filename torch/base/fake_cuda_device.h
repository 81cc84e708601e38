#ifndef PLANISH_TORCH_BASE_FAKE_CUDA_DEVICE_H_
#define PLANISH_TORCH_BASE_FAKE_CUDA_DEVICE_H_

#include <ATen/core/Tensor.h>

// A fake CUDA device for tests without a GPU: CUDA tensors whose memory is the host's. Planish's
// operators run their CUDA kernels as C++ (src/base/cuda/emulation.h); PyTorch's operators call
// their CPU versions. Needs a libtorch without CUDA. Linking this file registers the device.
namespace planish::tests {

/// Returns a copy of `t` on the device; undefined if `t` is.
at::Tensor ToGpu(const at::Tensor& t);

/// Returns a copy of `t` on the CPU; undefined if `t` is.
at::Tensor ToCpu(const at::Tensor& t);

}  // namespace planish::tests

#endif  // PLANISH_TORCH_BASE_FAKE_CUDA_DEVICE_H_
