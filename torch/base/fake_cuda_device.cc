#include "torch/base/fake_cuda_device.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/mm.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// The registry requires this namespace.
namespace at {

/// Reports a CUDA device; otherwise autograd runs nothing on it.
struct FakeCudaHooks final : CUDAHooksInterface {
  explicit FakeCudaHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void*) const override { return true; }
  Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
};
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, FakeCudaHooks)

}  // namespace at

namespace planish::tests {
namespace {

using at::Tensor;

constexpr c10::DeviceType kGpu = c10::DeviceType::CUDA;

c10::Device Gpu() { return {kGpu, 0}; }

/// Returns a tensor of another device that shares the memory of `t`.
Tensor Seen(const Tensor& t, c10::Device device) {
  auto* owner = new c10::Storage(t.storage());
  c10::DataPtr data(
      owner->mutable_data(), owner, [](void* kept) { delete static_cast<c10::Storage*>(kept); },
      device);
  // Resizable, which marks memory as PyTorch's own.
  c10::Storage storage(c10::Storage::use_byte_size_t(), owner->nbytes(), std::move(data),
                       c10::GetCPUAllocator(), /*resizable=*/true);
  const bool gpu = device.type() == kGpu;
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(gpu ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU),
      t.dtype());
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  return Tensor(std::move(impl));
}

/// Returns whether an operator takes tensors of the CPU and of a GPU, as PyTorch's does.
bool TakesBothDevices(const std::string& name) {
  return name == "aten::copy_" || name == "aten::_to_copy" || name == "aten::index" ||
         name == "aten::index_put_" || name == "aten::_index_put_impl_";
}

/// Runs one of PyTorch's operators with its CPU kernel, on the same memory. Like PyTorch, refuses
/// tensors of both devices.
void OnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t begin = stack->size() - arguments.size();
  std::vector<std::pair<Tensor, Tensor>> seen;  // the argument, and its CPU tensor
  bool has_cpu = false;
  const auto on_cpu = [&](const Tensor& t) {
    if (!t.defined() || t.is_cpu()) {
      has_cpu |= t.defined() && t.dim() > 0;
      return t;
    }
    seen.emplace_back(t, Seen(t, c10::Device(c10::kCPU)));
    return seen.back().second;
  };
  for (size_t i = begin; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      value = on_cpu(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& t : value.toTensorVector()) list.push_back(on_cpu(t));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor> t : value.toOptionalTensorList()) {
        list.push_back(t ? std::optional(on_cpu(*t)) : std::nullopt);
      }
      value = list;
    } else if (value.isDevice()) {
      value = c10::Device(c10::kCPU);
    }
  }
  TORCH_CHECK(!has_cpu || seen.empty() || TakesBothDevices(op.schema().name()), op.schema().name(),
              ": Expected all tensors to be on the same device, but found at least two devices, "
              "cuda:0 and cpu!");
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (const auto& [tensor, cpu] : seen) {
    // The operator can have resized an output.
    if (cpu.sizes() == tensor.sizes() && cpu.const_data_ptr() == tensor.const_data_ptr()) continue;
    c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(Seen(cpu, Gpu()).storage());
    impl->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
  }
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    Tensor result = value.toTensor();
    bool given = false;
    for (const auto& [tensor, cpu] : seen) {
      if (!given && cpu.is_same(result)) {
        value = tensor;
        given = true;
      }
    }
    if (!given) value = Seen(result, Gpu());
  }
}

/// Multiplies 16-bit matrices in float, for which the CPU has no operator.
Tensor& WideProduct(const Tensor& a, const Tensor& b, at::ScalarType type, Tensor& out) {
  return at::mm_out(out, a.to(type), b.to(type));
}

struct FakeCudaGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kGpu; }
  c10::Device exchangeDevice(c10::Device) const override { return Gpu(); }
  c10::Device getDevice() const override { return Gpu(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return getStream(Gpu()); }
  void* getStreamNativeHandle(c10::Stream) const override { return nullptr; }
  // Every operator has ended when it returns.
  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};

C10_REGISTER_GUARD_IMPL(CUDA, FakeCudaGuard);

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&OnHost>()); }

// copy_ has a kernel for every device that calls the device's own copy, so the fallback misses it.
TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&OnHost>());
  m.impl("mm.dtype_out", TORCH_FN(WideProduct));
}

Tensor ToGpu(const Tensor& t) { return t.defined() ? Seen(t.detach().clone(), Gpu()) : t; }

Tensor ToCpu(const Tensor& t) {
  return t.defined() ? Seen(t.detach(), c10::Device(c10::kCPU)).clone() : t;
}

}  // namespace planish::tests
