#ifndef PLANISH_SRC_BASE_AWAIT_H_
#define PLANISH_SRC_BASE_AWAIT_H_

#include <atomic>
#include <cstdint>

namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Checks of a value before the waiting thread sleeps: about ten microseconds.
inline constexpr int kSpins = 2000;

// --- End of tuning constants ---

/// Waits until `value` differs from `old` and returns it. Spins, then sleeps; the writer must call
/// notify_all or notify_one.
inline uint64_t AwaitChange(const std::atomic<uint64_t>& value, uint64_t old) {
  for (int spin = 0;; ++spin) {
    const uint64_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    if (spin < kSpins) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else {
      value.wait(old, std::memory_order_acquire);
    }
  }
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_AWAIT_H_
