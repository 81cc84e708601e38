#ifndef PLANISH_BENCH_NORM_ARENA_H_
#define PLANISH_BENCH_NORM_ARENA_H_

#include <cstddef>
#include <memory>

#include "bench/norm/case.h"

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

/// The arrays of one case after the other, which share their memory: no case pays for fresh pages.
class Arena {
 public:
  /// Arrays for `c`, valid until the next call. x and dy are uniform with mean 0 and variance 1:
  /// random, for zeros flatter streaming stores; gain is uniform in [0.5, 1.5], bias in [-1, 1].
  /// out, dgain and dbias hold what they held. mean and rstd are those of LayerNorm.
  Arrays For(const Case& c);

 private:
  Pages x_, dy_, out_, parameters_, moments_;
  Type type_ = Type::kFloat;
  int64_t filled_ = 0;  // elements of x and dy that hold numbers of type_
};

}  // namespace planish::bench

#endif  // PLANISH_BENCH_NORM_ARENA_H_
