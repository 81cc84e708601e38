#ifndef PLANISH_BENCH_BASE_C_SESSION_H_
#define PLANISH_BENCH_BASE_C_SESSION_H_

#include <exception>
#include <functional>
#include <map>
#include <string>

namespace planish::bench {

/// State of a comparison's shared library between the calls from bench/base/turns.py.
struct CSession {
  std::map<std::string, std::function<void()>> calls;  ///< of the contestants so far
  std::string text;                                    ///< message of the last function

  /// Runs `f`. Returns true if it threw, with the message in `text`.
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
