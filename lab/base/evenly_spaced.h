#ifndef PLANISH_LAB_BASE_EVENLY_SPACED_H_
#define PLANISH_LAB_BASE_EVENLY_SPACED_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace planish::lab {

/// Returns at most `max_count` items in their order: all, or evenly spaced ones including the
/// first.
template <class T>
std::vector<T> EvenlySpaced(const std::vector<T>& all, int64_t max_count) {
  const int64_t count = std::ssize(all);
  if (count <= max_count) return all;
  std::vector<T> some;
  for (int64_t i = 0; i < max_count; ++i)
    some.push_back(all[static_cast<size_t>(i * count / max_count)]);
  return some;
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_BASE_EVENLY_SPACED_H_
