#ifndef PLANISH_SRC_BASE_AWAIT_H_
#define PLANISH_SRC_BASE_AWAIT_H_

#include <atomic>
#include <cstdint>

namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Checks of a value before the waiting thread sleeps: about ten microseconds.
inline constexpr int kSpins = 2000;

// --- End of tuning constants ---

/// Pauses a spinning thread for a few nanoseconds, to save power and leave the core's units to its
/// other thread.
inline void PauseSpinning() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // `yield` takes no time on cores with one thread
#endif
}

/// Waits until `value` differs from `old` and returns it. Spins, then sleeps; the writer must call
/// notify_all or notify_one.
inline uint64_t AwaitChange(const std::atomic<uint64_t>& value, uint64_t old) {
  for (int spin = 0;; ++spin) {
    const uint64_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    if (spin < kSpins) {
      PauseSpinning();
    } else {
      value.wait(old, std::memory_order_acquire);
    }
  }
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_AWAIT_H_
