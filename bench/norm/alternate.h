#ifndef PLANISH_BENCH_NORM_ALTERNATE_H_
#define PLANISH_BENCH_NORM_ALTERNATE_H_

#include <functional>
#include <vector>

namespace planish::bench {

/// Seconds of a call of each of `calls`, of its fastest block: each has `blocks` blocks of about
/// `seconds` (at least one call), in an order drawn at random, so that what changes meanwhile
/// changes for all.
std::vector<double> Alternate(const std::vector<std::function<void()>>& calls, int blocks,
                              double seconds);

}  // namespace planish::bench

#endif  // PLANISH_BENCH_NORM_ALTERNATE_H_
