#ifndef PLANISH_LAB_BENCH_PAGES_H_
#define PLANISH_LAB_BENCH_PAGES_H_

#include <cstddef>
#include <memory>

namespace planish::bench {

/// Zeroed memory, aligned to huge pages and in huge pages if the system provides them. Like two
/// large allocations, two of them have addresses with the same low bits.
class Pages {
 public:
  Pages() = default;
  /// Throws std::bad_alloc.
  explicit Pages(size_t bytes);
  void* get() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Unmap {
    size_t bytes;
    void operator()(void* data) const;
  };
  std::unique_ptr<void, Unmap> data_{nullptr, Unmap{0}};
  size_t size_ = 0;
};

/// Makes `pages` at least `bytes` large. Returns true if it had to grow, which loses its contents.
bool Grow(Pages& pages, size_t bytes);

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_PAGES_H_
