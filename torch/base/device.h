#ifndef PLANISH_TORCH_BASE_DEVICE_H_
#define PLANISH_TORCH_BASE_DEVICE_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>

// Calls of the core on a GPU. Nothing here needs PyTorch's library for CUDA: the same binding loads
// where there is none.
namespace planish {

/// While one lives, the device of `x` is the current one.
class OnDeviceOf {
 public:
  explicit OnDeviceOf(const at::Tensor& x) : device_(x.device()), guard_(x.device()) {}

  /// PyTorch's current stream there: a cudaStream_t.
  void* stream() const {
    return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).native_handle();
  }

  /// Memory for a call. PyTorch keeps it for this stream: it may go as soon as the call is on it.
  at::Tensor Workspace(int64_t bytes) const {
    return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device_));
  }

 private:
  c10::Device device_;
  c10::DeviceGuard guard_;
};

}  // namespace planish

#endif  // PLANISH_TORCH_BASE_DEVICE_H_
