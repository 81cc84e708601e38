#ifndef PLANISH_LAB_BENCH_CONTESTANT_H_
#define PLANISH_LAB_BENCH_CONTESTANT_H_

#include <functional>
#include <string>

namespace planish::bench {

/// What a contestant does in a case: work that can be repeated, or the reason why it takes no part.
struct Contestant {
  std::function<void()> call;
  std::string absent;  ///< empty when `call` is there
  /// Copies the results of the last call to where they are compared; empty where they are there.
  std::function<void()> fetch;
};

}  // namespace planish::bench

#endif  // PLANISH_LAB_BENCH_CONTESTANT_H_
