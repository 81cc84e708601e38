#ifndef PLANISH_SRC_NORM_ONLINE_TURNS_H_
#define PLANISH_SRC_NORM_ONLINE_TURNS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/await.h"

namespace planish::internal {

/// Order of turns, which are units of work that threads prepare in parallel and complete one after
/// the other. A turn belongs to the thread that takes it. There is no lock, and turns can pass on
/// state in ordinary variables. Writes that a thread makes before it completes a turn are visible
/// to every thread for which Await of a later turn has returned.
class Turns {
 public:
  explicit Turns(int64_t count) : taken_(static_cast<size_t>(count)) {}

  int64_t count() const { return static_cast<int64_t>(taken_.size()); }

  /// Takes a turn. Returns false if it has been taken before.
  bool Take(int64_t turn) { return !taken_[static_cast<size_t>(turn)].exchange(true); }

  /// Takes the first of turn, turn + step, ... that is free, and returns it. Returns an index of at
  /// least count() if there is none.
  int64_t TakeFrom(int64_t turn, int64_t step) {
    while (turn < count() && !Take(turn)) turn += step;
    return turn;
  }

  /// Completes a turn that the thread has taken, after Await(turn).
  void Complete(int64_t turn) {
    completed_.store(static_cast<uint64_t>(turn) + 1, std::memory_order_release);
    completed_.notify_all();
  }

  /// Returns after the turns [0, turn) are complete. If the next of them is free, takes it and
  /// calls process(next), which must complete it. So a thread waits only for turns that other
  /// threads are processing. This holds even if ranges of turns start late or run one after the
  /// other on one thread.
  template <class F>
  void Await(int64_t turn, const F& process) {
    uint64_t seen = completed_.load(std::memory_order_acquire);
    while (static_cast<int64_t>(seen) < turn) {
      if (!Take(static_cast<int64_t>(seen))) {
        seen = AwaitChange(completed_, seen);
        continue;
      }
      process(static_cast<int64_t>(seen));
      ++seen;
    }
  }

 private:
  std::vector<std::atomic<bool>> taken_;
  std::atomic<uint64_t> completed_{0};
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ONLINE_TURNS_H_
