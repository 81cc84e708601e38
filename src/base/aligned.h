#ifndef PLANISH_SRC_BASE_ALIGNED_H_
#define PLANISH_SRC_BASE_ALIGNED_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <new>

#include "src/base/pages.h"

namespace planish::internal {

/// The size of a cache line, and of the largest vector: what is aligned to it is never read in two.
inline constexpr int64_t kAlignment = 64;

struct AlignedDelete {
  void operator()(void* p) const { ::operator delete[](p, std::align_val_t{kAlignment}); }
};

/// An array of numbers without values, aligned to kAlignment. Throws std::bad_alloc.
template <class T>
using AlignedArray = std::unique_ptr<T[], AlignedDelete>;

template <class T>
AlignedArray<T> MakeAligned(int64_t n) {
  if (n > std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(T))) {
    throw std::bad_alloc();
  }
  void* p = ::operator new[](static_cast<size_t>(n) * sizeof(T), std::align_val_t{kAlignment});
  return AlignedArray<T>(static_cast<T*>(p));
}

/// An array that grows and is kept from call to call, in huge pages where it is large.
template <class T>
class Buffer {
 public:
  /// At least n numbers, whose values are whatever they were. Throws std::bad_alloc.
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
