#ifndef PLANISH_BENCH_BASE_C_SESSION_H_
#define PLANISH_BENCH_BASE_C_SESSION_H_

#include <exception>
#include <functional>
#include <map>
#include <string>

namespace planish::bench {

/// What the shared library of a comparison, which bench/base/turns.py calls, keeps from call to
/// call.
struct CSession {
  std::map<std::string, std::function<void()>> calls;  ///< of the contestants so far
  std::string text;                                    ///< what the last function had to say

  /// Runs `f`; whether it threw, which `text` tells.
  template <class F>
  bool Fails(const F& f) {
    text.clear();
    try {
      f();
      return false;
    } catch (const std::exception& e) {
      text = e.what();
      return true;
    }
  }
};

}  // namespace planish::bench

#endif  // PLANISH_BENCH_BASE_C_SESSION_H_
