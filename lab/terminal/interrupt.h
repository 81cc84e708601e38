#ifndef PLANISH_LAB_TERMINAL_INTERRUPT_H_
#define PLANISH_LAB_TERMINAL_INTERRUPT_H_

#include <signal.h>

#include <array>

namespace planish::lab {

/// Records the first SIGINT, SIGTERM or SIGHUP (a closed terminal) for a loop that polls
/// Interrupted() and ends in order.
/// After it, SIGINT has its default effect again: a second Ctrl-C ends the process immediately. A
/// signal that the process was started to ignore (for example by nohup) stays ignored.
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

/// Variable with the number of the process that started this one and waits for it.
inline constexpr char kStarterVariable[] = "PLANISH_STARTER";

/// Ends this process in order, as SIGTERM does, when the process that kStarterVariable names is
/// killed. Does nothing without the variable, and on other systems than Linux.
void StopWithStarter();

/// Returns the first signal received under the latest InterruptGuard, or 0.
int Interrupted();

}  // namespace planish::lab

#endif  // PLANISH_LAB_TERMINAL_INTERRUPT_H_
