#ifndef PLANISH_TORCH_NORM_ARRAYS_H_
#define PLANISH_TORCH_NORM_ARRAYS_H_

#include <ATen/core/Tensor.h>
#include <c10/util/MaybeOwned.h>

#include <cstdint>
#include <type_traits>
#include <utility>

#include "planish/types.h"
#include "torch/base/core.h"

// Conversions of tensors of all floating types to the core's arrays.
namespace planish {

/// Returns the tensor's memory, or null if it is undefined. The caller checks the type. The core's
/// 16-bit types have PyTorch's layout.
template <class T>
T* Array(const at::Tensor& t) {
  if (!t.defined()) return nullptr;
  if constexpr (std::is_const_v<T>) {
    return static_cast<T*>(t.const_data_ptr());
  } else {
    return static_cast<T*>(t.mutable_data_ptr());
  }
}

/// Calls f.operator()<T, P>, where T is x's type, and P that of `parameter` (T or float), by
/// default T.
template <class F>
void ByTypes(const at::Tensor& x, const at::Tensor& parameter, F&& f) {
  const auto call = [&]<class T>() {
    WithCoreErrors([&] {
      if constexpr (!std::is_same_v<T, float>) {
        if (parameter.defined() && parameter.scalar_type() == at::kFloat) {
          return f.template operator()<T, float>();
        }
      }
      f.template operator()<T, T>();
    });
  };
  switch (x.scalar_type()) {
    case at::kDouble:
      return call.template operator()<double>();
    case at::kBFloat16:
      return call.template operator()<bfloat16>();
    case at::kHalf:
      return call.template operator()<float16>();
    default:
      return call.template operator()<float>();
  }
}

/// Returns `t` or a contiguous copy; undefined if `t` is.
inline c10::MaybeOwned<at::Tensor> ContiguousOrBorrowed(
    const at::Tensor& t, at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  if (!t.defined() || t.is_contiguous(format)) return c10::MaybeOwned<at::Tensor>::borrowed(t);
  return c10::MaybeOwned<at::Tensor>::owned(t.contiguous(format));
}

/// A tensor as a matrix whose rows are its last dimension.
struct Rows {
  c10::MaybeOwned<at::Tensor> tensor;  ///< the tensor, or a copy if its rows have no common stride
  int64_t rows = 1, cols = 0, stride = 0;

  template <class T>
  T* array() const {
    return Array<T>(*tensor);
  }
};

inline Rows RowsOf(const at::Tensor& t) {
  Rows rows{c10::MaybeOwned<at::Tensor>::borrowed(t)};
  if (!t.defined()) return rows;
  const int64_t last = t.dim() - 1;
  rows.cols = t.size(last);
  for (int64_t d = 0; d < last; ++d) rows.rows *= t.size(d);
  rows.stride = rows.cols;
  if (t.is_contiguous()) return rows;
  // The row stride is that of the innermost dimension larger than 1. The strides of the outer
  // dimensions must follow from it.
  bool even = t.stride(last) == 1 || rows.cols <= 1;
  int64_t stride = 0, inner = 1;
  for (int64_t d = last - 1; d >= 0; --d) {
    if (t.size(d) == 1) continue;
    if (stride == 0) stride = t.stride(d);
    even = even && t.stride(d) == stride * inner;
    inner *= t.size(d);
  }
  if (even && stride >= rows.cols) {
    rows.stride = stride;
  } else {
    rows.tensor = c10::MaybeOwned<at::Tensor>::owned(t.contiguous());
  }
  return rows;
}

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_ARRAYS_H_
