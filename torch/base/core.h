#ifndef PLANISH_TORCH_BASE_CORE_H_
#define PLANISH_TORCH_BASE_CORE_H_

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/SymIntArrayRef.h>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <cstddef>
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

/// Tensors from here on are large: a system call is nothing beside what is done with them.
inline constexpr size_t kLargeBytes = 1 << 22;

/// Whether a large tensor's memory is as the system has just mapped it, so that its first use will
/// be met by the kernel's zeros. A page in the middle is asked.
inline bool IsNewMemory(const at::Tensor& t) {
#ifdef __linux__
  if (!t.defined() || t.nbytes() < kLargeBytes) return false;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto middle = reinterpret_cast<uintptr_t>(t.const_data_ptr()) + t.nbytes() / 2;
  unsigned char resident = 1;
  return mincore(reinterpret_cast<void*>(middle / page * page), 1, &resident) == 0 &&
         (resident & 1) == 0;
#else
  return false;
#endif
}

/// Asks the system for huge pages where a tensor's memory is new. It is about to be written from
/// its start to its end, and the faults of small pages take several times as long as a norm.
inline void AdviseHugePages(const at::Tensor& t) {
#ifdef __linux__
  if (!IsNewMemory(t)) return;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(t.const_data_ptr());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + t.nbytes()) / page * page;
  // Where it fails, pages are small.
  (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#endif
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
  AdviseHugePages(t);
  return t;
}

/// PyTorch's threads run the core's loops: a second pool would fight libgomp's spinning workers.
inline void TorchParallelFor(int64_t begin, int64_t end, int64_t grain, RangeTask task) {
  at::parallel_for(begin, end, grain, task);
}

}  // namespace planish

#endif  // PLANISH_TORCH_BASE_CORE_H_
