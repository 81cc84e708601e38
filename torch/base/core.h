#ifndef PLANISH_TORCH_BASE_CORE_H_
#define PLANISH_TORCH_BASE_CORE_H_

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "planish/parallel.h"

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

/// Calls f.operator()<float> or <double>.
template <class F>
void ByType(at::ScalarType type, F&& f) {
  if (type == at::kFloat) {
    f.template operator()<float>();
  } else {
    f.template operator()<double>();
  }
}

/// PyTorch's threads run the core's loops: a second pool would fight libgomp's spinning workers.
inline void TorchParallelFor(int64_t begin, int64_t end, int64_t grain, RangeTask task) {
  at::parallel_for(begin, end, grain, task);
}

}  // namespace planish

#endif  // PLANISH_TORCH_BASE_CORE_H_
