#ifndef PLANISH_LAB_BENCH_PAGES_H_
#define PLANISH_LAB_BENCH_PAGES_H_

#include <cstddef>
#include <memory>

namespace planish::bench {

/// Memory in huge pages where the system gives them, touched, and aligned to them: what two large
/// allocations are like, whose addresses have the same low bits.
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

/// Makes `pages` hold `bytes`; whether it had to grow, and lost what it held.
bool Grow(Pages& pages, size_t bytes);

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_PAGES_H_
