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

/// What a call on the device of `x` takes beside its arrays: PyTorch's current stream there, and a
/// workspace. Its device is the current one while it lives.
class GpuCall {
 public:
  GpuCall(const at::Tensor& x, int64_t workspace_bytes)
      : device_(x), workspace_(device_.Workspace(workspace_bytes)) {}

  /// `options` of one of the core's functions with them.
  template <class Options>
  Options With(Options options) const {
    options.stream = device_.stream();
    options.workspace = workspace_.mutable_data_ptr();
    options.workspace_bytes = static_cast<int64_t>(workspace_.nbytes());
    return options;
  }

 private:
  OnDeviceOf device_;
  at::Tensor workspace_;
};

}  // namespace planish

#endif  // PLANISH_TORCH_BASE_DEVICE_H_
