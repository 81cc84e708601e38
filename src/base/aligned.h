#ifndef PLANISH_SRC_BASE_ALIGNED_H_
#define PLANISH_SRC_BASE_ALIGNED_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <new>

#include "src/base/pages.h"

namespace planish::internal {

/// Bytes of a cache line and of the largest vector. An aligned vector never crosses a cache line.
inline constexpr int64_t kAlignment = 64;

struct AlignedDelete {
  void operator()(void* p) const { ::operator delete[](p, std::align_val_t{kAlignment}); }
};

/// Uninitialized array, aligned to kAlignment.
template <class T>
using AlignedArray = std::unique_ptr<T[], AlignedDelete>;

/// Throws std::bad_alloc.
template <class T>
AlignedArray<T> MakeAligned(int64_t n) {
  if (n > std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(T))) {
    throw std::bad_alloc();
  }
  void* p = ::operator new[](static_cast<size_t>(n) * sizeof(T), std::align_val_t{kAlignment});
  return AlignedArray<T>(static_cast<T*>(p));
}

/// Returns an uninitialized array, like std::make_unique_for_overwrite, which libc++ lacks
/// before 16. Throws std::bad_alloc.
template <class T>
std::unique_ptr<T[]> MakeUninitialized(int64_t n) {
  return std::unique_ptr<T[]>(new T[static_cast<size_t>(n)]);
}

/// Growing array that keeps its memory from call to call, in huge pages if it is large.
template <class T>
class Buffer {
 public:
  /// Returns at least n elements; growing discards the contents. Throws std::bad_alloc.
  T* Get(int64_t n) {
    if (n > capacity_) {
      capacity_ = 0;
      data_.reset();
      data_ = MakeAligned<T>(n);
      AdviseHugePages(data_.get(), static_cast<size_t>(n) * sizeof(T));
      capacity_ = n;
    }
    return data_.get();
  }
  const T* data() const { return data_.get(); }
  T* data() { return data_.get(); }
  int64_t bytes() const { return capacity_ * static_cast<int64_t>(sizeof(T)); }

 private:
  AlignedArray<T> data_;
  int64_t capacity_ = 0;
};

inline bool IsAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kAlignment == 0; }

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_ALIGNED_H_
