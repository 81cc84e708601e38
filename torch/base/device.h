#ifndef PLANISH_TORCH_BASE_DEVICE_H_
#define PLANISH_TORCH_BASE_DEVICE_H_

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>

// Calls of the core's CUDA functions. They do not need PyTorch's CUDA library, so the same binding
// loads without it.
namespace planish {

/// Makes the device of `x` the current device during its lifetime.
class OnDeviceOf {
 public:
  explicit OnDeviceOf(const at::Tensor& x) : device_(x.device()), guard_(x.device()) {}

  /// Returns PyTorch's current stream on the device, a cudaStream_t.
  void* stream() const {
    return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).native_handle();
  }

  /// Returns memory that can be freed as soon as the call is enqueued: PyTorch reuses it in stream
  /// order.
  at::Tensor Workspace(int64_t bytes) const {
    return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device_));
  }

 private:
  c10::Device device_;
  c10::DeviceGuard guard_;
};

/// The stream and workspace of a call on the device of `x`. The device is current during the
/// object's lifetime.
class GpuCall {
 public:
  GpuCall(const at::Tensor& x, int64_t workspace_bytes)
      : device_(x), workspace_(device_.Workspace(workspace_bytes)) {}

  /// Returns `options` of a core function with the stream and the workspace set.
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
