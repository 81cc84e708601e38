#ifndef PLANISH_SRC_BASE_LOOP_H_
#define PLANISH_SRC_BASE_LOOP_H_

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>

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

/// Runs task(begin, end, scratch) as RunParallel does, where each range has what make() returns to
/// itself. The first is made before any task runs: without memory for it the call has written
/// nothing. A range that gets no memory for another one waits for the first.
template <class Make, class Task>
void RunWithScratch(const ParallelFor& parallel_for, int64_t n, int64_t grain, const Make& make,
                    const Task& task) {
  if (n <= 0) return;
  auto first = make();
  std::mutex mutex;
  RunParallel(parallel_for, n, grain, [&](int64_t begin, int64_t end) {
    std::unique_lock lock(mutex, std::try_to_lock);
    std::optional<decltype(make())> own;
    if (!lock) {
      try {
        own.emplace(make());
      } catch (const std::bad_alloc&) {
        lock.lock();
      }
    }
    task(begin, end, own ? *own : first);
  });
}

/// The grain, in items, that gives a thread enough to do.
inline int64_t GrainFor(int64_t elements_per_item) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, elements_per_item));
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_LOOP_H_
