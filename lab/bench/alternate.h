#ifndef PLANISH_LAB_BENCH_ALTERNATE_H_
#define PLANISH_LAB_BENCH_ALTERNATE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace planish::bench {

/// Returns the seconds of `count` calls.
double SecondsOf(const std::function<void()>& call, int64_t count);

/// Returns the seconds per call of each of `calls`, from its fastest block. Each has `blocks`
/// blocks of about `seconds` (at least one call) in random order, so that disturbances affect all
/// alike.
/// A call whose blocks would take longer than `max_seconds` in total has fewer blocks, but at least
/// min(blocks, 3).
std::vector<double> Alternate(const std::vector<std::function<void()>>& calls, int blocks,
                              double seconds,
                              double max_seconds = std::numeric_limits<double>::infinity());

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_ALTERNATE_H_
