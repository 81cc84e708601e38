#ifndef PLANISH_SRC_BASE_LOOP_H_
#define PLANISH_SRC_BASE_LOOP_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "planish/parallel.h"

namespace planish::internal {

/// Runs `task` over [0, n): on the calling thread when there is no `parallel_for` or when one
/// grain holds it all.
inline void RunParallel(const ParallelFor& parallel_for, int64_t n, int64_t grain, RangeTask task) {
  if (n <= 0) return;
  if (parallel_for && n > grain) {
    parallel_for(0, n, grain, task);
  } else {
    task(0, n);
  }
}

/// The grain, in items, that gives a thread enough to do: 2^15 elements, some ten microseconds.
inline int64_t GrainFor(int64_t elements_per_item) {
  return std::max<int64_t>(1, (int64_t{1} << 15) / std::max<int64_t>(1, elements_per_item));
}

/// Calls f with std::true_type or std::false_type, so that an argument which is fixed for a whole
/// call is decided outside the loops.
template <class F>
void VisitBool(bool value, F&& f) {
  if (value) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_LOOP_H_
