#ifndef PLANISH_LAB_TERMINAL_INTERRUPT_H_
#define PLANISH_LAB_TERMINAL_INTERRUPT_H_

#include <signal.h>

namespace planish::lab {

/// While it lives, the first SIGINT or SIGTERM is only noted, for a loop that asks Interrupted()
/// and ends in order. From then on SIGINT has the system's own effect again, so that a second
/// Ctrl-C ends the process at once. A SIGINT that the process was started to ignore stays ignored.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction before_int_;
  struct sigaction before_term_;
};

/// The first signal that came under the latest InterruptGuard, or 0.
int Interrupted();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TERMINAL_INTERRUPT_H_
