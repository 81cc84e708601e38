#ifndef PLANISH_SRC_BASE_LOOP_H_
#define PLANISH_SRC_BASE_LOOP_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>

#include "planish/parallel.h"
#include "src/base/tuning.h"

namespace planish::internal {

/// Throws ArgumentError if PLANISH_TARGET is invalid.
void CheckTarget();

/// Runs `task` over [0, n). Uses the calling thread if n <= grain, else `parallel_for`, or
/// DefaultParallelFor if that is empty. Throws ArgumentError, before any task runs, if
/// PLANISH_TARGET or PLANISH_TUNING is invalid.
inline void RunParallel(const ParallelFor& parallel_for, int64_t n, int64_t grain, RangeTask task) {
  if (n <= 0) return;
  // Here rather than in a task, which must not throw.
  CheckTarget();
  CurrentTuning();
  if (n <= grain) {
    task(0, n);
  } else if (parallel_for) {
    parallel_for(0, n, grain, task);
  } else {
    DefaultParallelFor(0, n, grain, task);
  }
}

/// Like RunParallel for a task that can throw std::bad_alloc. Throws it after all tasks have
/// returned.
template <class Task>
void RunParallelAllocating(const ParallelFor& parallel_for, int64_t n, int64_t grain,
                           const Task& task) {
  std::atomic<bool> failed = false;
  RunParallel(parallel_for, n, grain, [&](int64_t begin, int64_t end) {
    try {
      task(begin, end);
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  });
  if (failed) throw std::bad_alloc();
}

/// A lock. In place of std::mutex, whose try_lock needs glibc 2.34 in a library that is built with
/// it or newer.
class Lock {
 public:
  bool try_lock() { return !locked_.exchange(true, std::memory_order_acquire); }
  void lock() {
    while (!try_lock()) locked_.wait(true, std::memory_order_relaxed);
  }
  void unlock() {
    locked_.store(false, std::memory_order_release);
    locked_.notify_one();
  }

 private:
  std::atomic<bool> locked_{false};
};

/// Runs task(begin, end, scratch) like RunParallel, with one make() for each concurrent range. The
/// first make() runs before any task, so its std::bad_alloc leaves outputs unwritten. A range whose
/// make() throws std::bad_alloc waits for the first scratch.
template <class Make, class Task>
void RunWithScratch(const ParallelFor& parallel_for, int64_t n, int64_t grain, const Make& make,
                    const Task& task) {
  if (n <= 0) return;
  auto first = make();
  Lock first_in_use;
  RunParallel(parallel_for, n, grain, [&](int64_t begin, int64_t end) {
    std::unique_lock lock(first_in_use, std::try_to_lock);
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

/// Returns the number of items that is worth a thread.
inline int64_t GrainFor(int64_t elements_per_item) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, elements_per_item));
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_LOOP_H_
