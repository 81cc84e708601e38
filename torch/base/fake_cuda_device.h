#ifndef PLANISH_TORCH_BASE_FAKE_CUDA_DEVICE_H_
#define PLANISH_TORCH_BASE_FAKE_CUDA_DEVICE_H_

#include <ATen/core/Tensor.h>

// A stand-in for a GPU, for tests where there is none: tensors of the type CUDA whose memory is the
// host's. Planish's operators then take their way to a GPU, whose kernels run as C++
// (src/base/cuda/emulation.h); PyTorch's own operators do what the CPU's do. For a libtorch without
// CUDA: who links this file has the device.
namespace planish::tests {

/// `t` on the device, a copy; undefined if it is.
at::Tensor ToGpu(const at::Tensor& t);

/// `t` on the CPU, likewise.
at::Tensor ToCpu(const at::Tensor& t);

}  // namespace planish::tests

#endif  // PLANISH_TORCH_BASE_FAKE_CUDA_DEVICE_H_
