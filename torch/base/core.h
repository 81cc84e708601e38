#ifndef PLANISH_TORCH_BASE_CORE_H_
#define PLANISH_TORCH_BASE_CORE_H_

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "planish/error.h"
#include "planish/parallel.h"
#include "src/base/check.h"
#include "src/base/pages.h"

// Conversions of tensors to the core's arrays. An absent tensor is undefined; its array is null.
namespace planish {

inline const at::Tensor& OrUndefined(const std::optional<at::Tensor>& t) {
  static const at::Tensor undefined;
  return t ? *t : undefined;
}

inline at::Tensor Contiguous(const at::Tensor& t) { return t.defined() ? t.contiguous() : t; }

template <class T>
const T* Data(const at::Tensor& t) {
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

template <class T>
T* MutableData(const at::Tensor& t) {
  return t.defined() ? t.mutable_data_ptr<T>() : nullptr;
}

inline bool IsFloatOrDouble(const at::Tensor& t) {
  return t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble;
}

/// Returns whether the norms accept elements of `type`.
inline bool IsNormType(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
}

/// Returns the type of statistics, and of the arithmetic and saved values of recurrent layers.
inline at::ScalarType ComputeType(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// Returns t in its ComputeType; undefined if t is.
inline at::Tensor Wide(const at::Tensor& t) {
  if (!t.defined()) return t;
  const at::ScalarType type = ComputeType(t.scalar_type());
  return t.scalar_type() == type ? t : t.to(type);
}

/// Returns the entry of a table with a name. Throws if there is none.
template <class Table>
const auto& FindNamed(const char* function, const char* argument, const Table& table,
                      std::string_view name) {
  for (const auto& entry : table) {
    if (name == entry.name) return entry;
  }
  std::string names;
  for (const auto& entry : table) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  TORCH_CHECK_VALUE(false, "[", function, "] ", argument, " must be one of ", names, ", got ",
                    name);
}

/// Calls f. Rethrows an ArgumentError of the core as c10::ValueError, other Errors as c10::Error.
template <class F>
auto WithCoreErrors(F&& f) {
  try {
    return f();
  } catch (const ArgumentError& error) {
    C10_THROW_ERROR(ValueError, error.what());
  } catch (const Error& error) {
    C10_THROW_ERROR(Error, error.what());
  }
}

inline void CheckEps(const char* function, double eps) {
  WithCoreErrors([&] { internal::CheckEps(function, eps); });
}

inline void CheckFinite(const char* function, const char* name, double value) {
  WithCoreErrors([&] { internal::CheckFinite(function, name, value); });
}

/// Calls f.operator()<float> or <double>, according to ComputeType(type).
template <class F>
void ByType(at::ScalarType type, F&& f) {
  if (ComputeType(type) == at::kFloat) {
    f.template operator()<float>();
  } else {
    f.template operator()<double>();
  }
}

/// Returns a new tensor on the device of x. The caller must write all of it.
inline at::Tensor EmptyOn(const at::Tensor& x, c10::SymIntArrayRef sizes, at::ScalarType type,
                          at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  const auto ints = c10::asIntArrayRefSlowOpt(sizes);
  if (!ints || !x.is_cpu()) {
    return at::empty_symint(sizes, x.options().dtype(type), format);
  }
  // Bypasses the dispatcher, whose cost is noticeable in a small call.
  at::Tensor t = at::detail::empty_cpu(*ints, type, /*pin_memory=*/false, format);
  if (t.nbytes() >= internal::kLargeBytes) {
    internal::AdviseHugePages(t.mutable_data_ptr(), t.nbytes());
  }
  return t;
}

/// Runs the core's loops on PyTorch's threads. A second pool would compete with libgomp's spinning
/// workers.
inline void TorchParallelFor(int64_t begin, int64_t end, int64_t grain, RangeTask task) {
  at::parallel_for(begin, end, grain, task);
}

}  // namespace planish

#endif  // PLANISH_TORCH_BASE_CORE_H_
