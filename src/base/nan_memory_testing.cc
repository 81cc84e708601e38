#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

// Replaces operator new in test programs by one whose memory is NaN in every floating-point type.
// Tests then fail in every run if a result depends on uninitialized memory.

// When inlined, malloc and free look like a mismatch with new and delete.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {

void* Filled(void* p, size_t size) {
  if (!p) throw std::bad_alloc();
  return std::memset(p, 0xff, size);
}

}  // namespace

void* operator new(size_t size) { return Filled(std::malloc(size), size); }
void* operator new(size_t size, std::align_val_t alignment) {
  const auto a = static_cast<size_t>(alignment);
  return Filled(std::aligned_alloc(a, (size + a - 1) / a * a), size);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
