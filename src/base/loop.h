#ifndef PLANISH_SRC_BASE_LOOP_H_
#define PLANISH_SRC_BASE_LOOP_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

#include "planish/parallel.h"
#include "src/base/tuning.h"

namespace planish::internal {

/// Runs `task` over [0, n): on the calling thread when one grain holds it all, else by
/// `parallel_for`, or by the library's own threads where that is empty.
inline void RunParallel(const ParallelFor& parallel_for, int64_t n, int64_t grain, RangeTask task) {
  if (n <= 0) return;
  if (n <= grain) {
    task(0, n);
  } else if (parallel_for) {
    parallel_for(0, n, grain, task);
  } else {
    DefaultParallelFor(0, n, grain, task);
  }
}

/// RunParallel of a task that takes memory. Threads have no use for an exception: bad_alloc is
/// thrown when all have returned.
template <class Task>
void RunAllocating(const ParallelFor& parallel_for, int64_t n, int64_t grain, const Task& task) {
  std::atomic<bool> failed{false};
  RunParallel(parallel_for, n, grain, [&](int64_t begin, int64_t end) {
    try {
      task(begin, end);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  });
  if (failed) throw std::bad_alloc();
}

/// The grain, in items, that gives a thread enough to do.
inline int64_t GrainFor(int64_t elements_per_item) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, elements_per_item));
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_LOOP_H_
