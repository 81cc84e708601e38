#ifndef PLANISH_LAB_BENCH_ALTERNATE_H_
#define PLANISH_LAB_BENCH_ALTERNATE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace planish::bench {

/// Seconds that `count` calls take.
double SecondsOf(const std::function<void()>& call, int64_t count);

/// Seconds of a call of each of `calls`, of its fastest block: each has `blocks` blocks of about
/// `seconds` (at least one call), in an order drawn at random, so that what changes meanwhile
/// changes for all. One whose blocks would take longer than `max_seconds` together has fewer, but
/// 3 if `blocks` are as many.
std::vector<double> Alternate(const std::vector<std::function<void()>>& calls, int blocks,
                              double seconds,
                              double max_seconds = std::numeric_limits<double>::infinity());

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_ALTERNATE_H_
