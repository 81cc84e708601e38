#include "lab/terminal/interrupt.h"

#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <atomic>
#include <cstdlib>
#include <string>

namespace planish::lab {

namespace {

std::atomic<int> interrupted{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not wait");

extern "C" void OnSignal(int signal_number) {
  int none = 0;
  interrupted.compare_exchange_strong(none, signal_number);
  struct sigaction action;
  if (sigaction(SIGINT, nullptr, &action) == 0 && action.sa_handler == OnSignal) {
    action.sa_handler = SIG_DFL;
    sigaction(SIGINT, &action, nullptr);
  }
}

void Install(int signal_number, struct sigaction* before) {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;  // a write in progress continues
  sigaction(signal_number, &action, before);
  if (before->sa_handler == SIG_IGN) sigaction(signal_number, before, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupted = 0;
  for (size_t i = 0; i < kSignals.size(); ++i) Install(kSignals[i], &before_[i]);
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

void StopWithStarter() {
#ifdef __linux__
  const char* starter = std::getenv(kStarterVariable);
  if (starter == nullptr) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // It can have ended before.
  if (std::to_string(getppid()) != starter) raise(SIGTERM);
#endif
}

int Interrupted() { return interrupted; }

}  // namespace planish::lab
