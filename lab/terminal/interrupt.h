#ifndef PLANISH_LAB_TERMINAL_INTERRUPT_H_
#define PLANISH_LAB_TERMINAL_INTERRUPT_H_

#include <signal.h>

#include <array>

namespace planish::lab {

/// Notes the first SIGINT, SIGTERM or SIGHUP (a terminal that closes) for a loop that asks
/// Interrupted() and ends in order. After it SIGINT has the system's own effect again, so that a
/// second Ctrl-C ends the process at once. A signal that the process was started to ignore (by
/// nohup, say) stays ignored.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

  std::array<struct sigaction, kSignals.size()> before_;
};

/// The first signal that came under the latest InterruptGuard, or 0.
int Interrupted();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TERMINAL_INTERRUPT_H_
