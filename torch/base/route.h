#ifndef PLANISH_TORCH_BASE_ROUTE_H_
#define PLANISH_TORCH_BASE_ROUTE_H_

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

// The decision which calls of operators skip PyTorch's dispatcher.
namespace planish {

/// The kernel that the dispatcher would call.
enum class Route : uint8_t {
  kDispatcher,  ///< unknown: only the dispatcher knows
  kAutograd,    ///< the operator's kernel for autograd
  kCpu,         ///< the operator's kernel for the CPU
};

inline c10::DispatchKeySet KeysOf(const at::Tensor& t) {
  return t.defined() ? t.key_set() : c10::DispatchKeySet();
}

/// Returns the route of a call on tensors with these keys. It is kDispatcher if a transform, mode,
/// tracer, profiler, autocast or tensor subclass observes the call. Otherwise the caller can call
/// the kernel itself. A direct call is faster: it does not convert arguments to the types of the
/// schema, in which norms and cells are names.
inline Route RouteOf(c10::DispatchKeySet keys) {
  static constexpr c10::DispatchKeySet passive(
      {c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU, c10::DispatchKey::ADInplaceOrView,
       c10::DispatchKey::BackendSelect});
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  keys = (keys | local.included_) - local.excluded_;
  if (!passive.isSupersetOf(keys)) return Route::kDispatcher;
  if (at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION)) return Route::kDispatcher;
  return keys.has(c10::DispatchKey::AutogradCPU) ? Route::kAutograd : Route::kCpu;
}

}  // namespace planish

#endif  // PLANISH_TORCH_BASE_ROUTE_H_
