#include "bench/norm/arena.h"

#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>

#include "bench/norm/contestants.h"
#include "bench/norm/reference.h"
#include "bench/norm/types.h"

namespace planish::bench {

namespace {

constexpr size_t kHugePage = size_t{1} << 21;

// A number in [-1, 1) that `index` alone decides (splitmix64), so that the threads can share the
// work.
double Uniform(uint64_t index) {
  uint64_t z = (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>(static_cast<int64_t>(z ^ (z >> 31))) * 0x1p-63;
}

// centre + radius * [-1, 1), other numbers for each `seed`.
void Fill(Type type, void* data, int64_t n, uint64_t seed, double centre, double radius) {
  VisitType(type, [&]<class T>() {
    T* values = static_cast<T*>(data);
    TorchThreads()(0, n, int64_t{1} << 16, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double u = Uniform((seed << 48) + static_cast<uint64_t>(i));
        values[i] = FromDouble<T>(centre + radius * u);
      }
    });
  });
}

// Whether `pages` had to grow.
bool Grow(Pages& pages, size_t bytes) {
  if (pages.size() >= bytes) return false;
  pages = Pages();  // first, lest old and new need memory together
  pages = Pages(bytes);
  return true;
}

}  // namespace

Pages::Pages(size_t bytes) : size_((bytes / kHugePage + 1) * kHugePage) {
  // One huge page more than is needed, for the alignment.
  const size_t mapped = size_ + kHugePage;
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  char* base = static_cast<char*>(data);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(base) % kHugePage) % kHugePage;
  if (before > 0) munmap(base, before);
  if (before < kHugePage) munmap(base + before + size_, kHugePage - before);
  data_ = {base + before, Unmap{size_}};
  madvise(data_.get(), size_, MADV_HUGEPAGE);  // it works without, too
  std::memset(data_.get(), 0, size_);
}

void Pages::Unmap::operator()(void* data) const { munmap(data, bytes); }

Arrays Arena::For(const Case& c) {
  const size_t bytes = static_cast<size_t>(c.elements()) * SizeOf(c.type);
  bool refill = c.type != type_ || c.elements() > filled_;
  refill |= Grow(x_, bytes);
  refill |= Grow(dy_, bytes);
  Grow(out_, bytes);
  if (refill) {
    const double radius = std::sqrt(3.0);
    Fill(c.type, x_.get(), c.elements(), 1, 0, radius);
    Fill(c.type, dy_.get(), c.elements(), 2, 0, radius);
    type_ = c.type;
    filled_ = c.elements();
  }
  // The small arrays follow each other with a gap, as an allocator of aligned memory places them.
  const Type parameter = ParameterType(c.type);
  const auto stride = [&](int64_t n) {
    return (static_cast<size_t>(n) * SizeOf(parameter) + 63) / 64 * 64 + 64;
  };
  const size_t row = stride(c.cols), column = stride(c.rows);
  Grow(parameters_, 4 * row);
  Grow(moments_, 2 * column);
  char* parameters = static_cast<char*>(parameters_.get());
  char* moments = static_cast<char*>(moments_.get());
  Fill(parameter, parameters, c.cols, 3, 1, 0.5);
  Fill(parameter, parameters + row, c.cols, 4, 0, 1);
  Arrays arrays = {.x = x_.get(), .gain = parameters, .bias = parameters + row, .out = out_.get()};
  if (c.direction == Direction::kBackward) {
    FillMoments(c, arrays.x, moments, moments + column);
    arrays.dy = dy_.get();
    arrays.mean = moments;
    arrays.rstd = moments + column;
    arrays.dgain = parameters + 2 * row;
    arrays.dbias = parameters + 3 * row;
  }
  return arrays;
}

}  // namespace planish::bench
