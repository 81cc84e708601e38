#ifndef PLANISH_LAB_BENCH_CONTESTANT_H_
#define PLANISH_LAB_BENCH_CONTESTANT_H_

#include <functional>
#include <string>

namespace planish::bench {

/// Work of a contestant in a case, which can be repeated, or the reason why it takes no part.
struct Contestant {
  std::function<void()> call;
  std::string absent;  ///< empty if `call` is set
  /// Copies the results of the last call to the arrays that are compared; empty if they are already
  /// there.
  std::function<void()> fetch;
  /// How often a value is rounded to a 16-bit type on its way to the result.
  int roundings = 1;
};

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_CONTESTANT_H_
