#include "lab/bench/pages.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

namespace planish::bench {

namespace {

constexpr size_t kHugePage = size_t{1} << 21;

}  // namespace

Pages::Pages(size_t bytes) : size_((bytes / kHugePage + 1) * kHugePage) {
  // One extra huge page for the alignment.
  const size_t mapped = size_ + kHugePage;
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  char* base = static_cast<char*>(data);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(base) % kHugePage) % kHugePage;
  if (before > 0) munmap(base, before);
  if (before < kHugePage) munmap(base + before + size_, kHugePage - before);
  data_ = {base + before, Unmap{size_}};
  madvise(data_.get(), size_, MADV_HUGEPAGE);  // only a hint: failure is harmless
  std::memset(data_.get(), 0, size_);
}

void Pages::Unmap::operator()(void* data) const { munmap(data, bytes); }

bool Grow(Pages& pages, size_t bytes) {
  if (pages.size() >= bytes) return false;
  pages = Pages();  // frees the old pages before allocating new ones
  pages = Pages(bytes);
  return true;
}

}  // namespace planish::bench
