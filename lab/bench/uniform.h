#ifndef PLANISH_LAB_BENCH_UNIFORM_H_
#define PLANISH_LAB_BENCH_UNIFORM_H_

#include <cstdint>

namespace planish::bench {

/// Returns a value in [-1, 1) that depends only on `index` (splitmix64), so that threads can fill
/// an array together.
inline double Uniform(uint64_t index) {
  uint64_t z = (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>(static_cast<int64_t>(z ^ (z >> 31))) * 0x1p-63;
}

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_UNIFORM_H_
