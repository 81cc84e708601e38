#ifndef PLANISH_SRC_BASE_ALLOCATION_HOOK_H_
#define PLANISH_SRC_BASE_ALLOCATION_HOOK_H_

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

// Replaces operator new by one that counts allocations and fails on demand. Include it in one
// source file of a test program.
namespace planish::tests {

/// Number of allocations since the program started.
inline std::atomic<int> allocations{0};

/// Number of allocations that succeed before all further ones fail.
inline std::atomic<int> allocations_left{std::numeric_limits<int>::max()};

/// Index of the only allocation that fails, counted from the start of the program; or -1.
inline std::atomic<int> failing_allocation{-1};

inline void CountAllocation() {
  if (allocations++ == failing_allocation) throw std::bad_alloc();
  if (allocations_left.load() == std::numeric_limits<int>::max()) return;
  if (allocations_left.fetch_sub(1) <= 0) throw std::bad_alloc();
}

/// Restores normal allocation at the end of a scope.
struct AllocationLimit {
  AllocationLimit() = default;
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;
  ~AllocationLimit() {
    allocations_left = std::numeric_limits<int>::max();
    failing_allocation = -1;
  }
};

/// Calls f, allowing `count` allocations. Returns whether f ended without std::bad_alloc.
template <class F>
bool EndsWithAllocations(int count, const F& f) {
  try {
    const AllocationLimit limit;
    allocations_left = count;
    f();
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

/// Calls f and lets only its allocation `index`, counted from 0, fail. Returns true if f ended
/// without std::bad_alloc.
template <class F>
bool EndsWithoutAllocation(int index, const F& f) {
  try {
    const AllocationLimit limit;
    failing_allocation = allocations + index;
    f();
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}  // namespace planish::tests

// When inlined, malloc and free look like a mismatch with new and delete.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(size_t size) {
  planish::tests::CountAllocation();
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t size, std::align_val_t alignment) {
  planish::tests::CountAllocation();
  const auto a = static_cast<size_t>(alignment);
  if (void* p = std::aligned_alloc(a, (size + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
// The default array operators call the functions above, those of the address sanitizer do not.
void* operator new[](size_t size) { return operator new(size); }
void* operator new[](size_t size, std::align_val_t alignment) {
  return operator new(size, alignment);
}
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }

#endif  // PLANISH_SRC_BASE_ALLOCATION_HOOK_H_
