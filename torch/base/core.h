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

#include "planish/error.h"
#include "planish/parallel.h"
#include "src/base/pages.h"

// What calls of the core share: tensors as the core's arrays. A tensor that is not there is an
// undefined one, and the core's null.
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

/// The types that arrays may have.
inline bool IsNormType(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf;
}

/// The type of statistics, and of what recurrent layers compute and save.
inline at::ScalarType ComputeType(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// In the type that it is computed in; undefined stays so.
inline at::Tensor Wide(const at::Tensor& t) {
  if (!t.defined()) return t;
  const at::ScalarType type = ComputeType(t.scalar_type());
  return t.scalar_type() == type ? t : t.to(type);
}

/// Calls f. An ArgumentError of the core becomes c10::ValueError, any other Error c10::Error.
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

/// Calls f.operator()<float> or <double>: the type that numbers of `type` are computed in.
template <class F>
void ByType(at::ScalarType type, F&& f) {
  if (ComputeType(type) == at::kFloat) {
    f.template operator()<float>();
  } else {
    f.template operator()<double>();
  }
}

/// A new tensor beside x, which is to be written whole.
inline at::Tensor EmptyOn(const at::Tensor& x, c10::SymIntArrayRef sizes, at::ScalarType type,
                          at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  const auto numbers = c10::asIntArrayRefSlowOpt(sizes);
  if (!numbers || !x.is_cpu()) {
    return at::empty_symint(sizes, x.options().dtype(type), format);
  }
  // Past the dispatcher, whose part in a small call one can measure.
  at::Tensor t = at::detail::empty_cpu(*numbers, type, /*pin_memory=*/false, format);
  if (t.nbytes() >= internal::kLargeBytes) {
    internal::AdviseHugePages(t.mutable_data_ptr(), t.nbytes());
  }
  return t;
}

/// PyTorch's threads run the core's loops: a second pool would fight libgomp's spinning workers.
inline void TorchParallelFor(int64_t begin, int64_t end, int64_t grain, RangeTask task) {
  at::parallel_for(begin, end, grain, task);
}

}  // namespace planish

#endif  // PLANISH_TORCH_BASE_CORE_H_
