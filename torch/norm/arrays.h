#ifndef PLANISH_TORCH_NORM_ARRAYS_H_
#define PLANISH_TORCH_NORM_ARRAYS_H_

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <c10/util/MaybeOwned.h>

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>

#include "planish/types.h"
#include "src/base/check.h"
#include "src/norm/arguments.h"
#include "torch/base/core.h"

// Conversions of tensors of all floating types to the core's arrays and calls.
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

/// Returns `args` with the sizes of x [..., cols].
template <class Args>
Args WithSizes(Args args, const at::Tensor& x) {
  args.cols = x.size(-1);
  args.rows = args.cols == 0 ? 0 : x.numel() / args.cols;
  return args;
}

/// Returns `t` or a contiguous copy; undefined if `t` is.
inline c10::MaybeOwned<at::Tensor> ContiguousOrBorrowed(
    const at::Tensor& t, at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  if (!t.defined() || t.is_contiguous(format)) return c10::MaybeOwned<at::Tensor>::borrowed(t);
  return c10::MaybeOwned<at::Tensor>::owned(t.contiguous(format));
}

/// Returns the distance from one row of a tensor to the next, in elements. Rows are along the last
/// dimension and have a common stride.
inline int64_t RowStride(const at::Tensor& t) {
  const int64_t last = t.dim() - 1;
  if (t.is_contiguous()) return t.size(last);
  int64_t d = last - 1;
  while (t.size(d) == 1) --d;
  return t.stride(d);
}

/// Returns `t`, or a contiguous copy if its rows have no common stride of at least their length.
inline c10::MaybeOwned<at::Tensor> EvenRows(const at::Tensor& t) {
  if (!t.defined() || t.is_contiguous()) return c10::MaybeOwned<at::Tensor>::borrowed(t);
  const int64_t last = t.dim() - 1, cols = t.size(last);
  // The stride is that of the innermost dimension larger than 1. The strides of the outer
  // dimensions must follow from it.
  bool even = t.stride(last) == 1 || cols <= 1;
  int64_t stride = 0, inner = 1;
  for (int64_t d = last - 1; d >= 0; --d) {
    if (t.size(d) == 1) continue;
    if (stride == 0) stride = t.stride(d);
    even = even && t.stride(d) == stride * inner;
    inner *= t.size(d);
  }
  if (even && stride >= cols) return c10::MaybeOwned<at::Tensor>::borrowed(t);
  return c10::MaybeOwned<at::Tensor>::owned(t.contiguous());
}

/// A tensor, or one row of a tensor, as an array argument of the core.
struct NamedArray {
  const char* name;  ///< of the core's argument
  const at::Tensor& tensor;
  int64_t row = 0;
};

/// Returns `args`, whose sizes are set, with its arrays set. VisitArguments of the call, with
/// `facts` as further arguments, gives their types, lengths and strides. `arrays` must be in the
/// order of VisitArguments. Undefined tensors are skipped, even if the call has no such array.
template <class Args, class... Facts>
Args WithArrays(Args args, std::initializer_list<NamedArray> arrays, const Facts&... facts) {
  const NamedArray* next = arrays.begin();
  const auto skip_undefined = [&] {
    while (next != arrays.end() && !next->tensor.defined()) ++next;
  };
  skip_undefined();
  const auto set = [&]<class E>(const internal::Argument<Args, E>& argument) {
    if (next == arrays.end() || std::string_view(next->name) != argument.name) return;
    TORCH_INTERNAL_ASSERT(next->tensor.element_size() == sizeof(E), argument.name);
    args.*argument.member =
        Array<E>(next->tensor) + next->row * argument.extent.rows * argument.extent.cols;
    if (argument.stride) args.*argument.stride = RowStride(next->tensor);
    ++next;
    skip_undefined();
  };
  internal::ForEachArgument(args, set, facts...);
  TORCH_INTERNAL_ASSERT(next == arrays.end(), next->name, " is not an argument, or out of order");
  return args;
}

}  // namespace planish

#endif  // PLANISH_TORCH_NORM_ARRAYS_H_
