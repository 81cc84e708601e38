#include "lab/terminal/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace planish::lab {
namespace {

// Returns the status from waitpid of a child process that runs `body`.
int EndOf(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(InterruptGuard, NotesTheFirstSignal) {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    const InterruptGuard guard;
    EXPECT_EQ(Interrupted(), 0);
    raise(signal_number);
    EXPECT_EQ(Interrupted(), signal_number);
    raise(SIGTERM);
    EXPECT_EQ(Interrupted(), signal_number);
  }
}

TEST(InterruptGuard, LetsTheSecondSigintEndTheProcess) {
  for (const int first : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = EndOf([&] {
      const InterruptGuard guard;
      raise(first);
      if (Interrupted() != first) _exit(1);
      raise(SIGINT);
    });
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGINT);
  }
}

TEST(InterruptGuard, RestoresEarlierHandlers) {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = EndOf([&] {
      {
        const InterruptGuard guard;
        raise(signal_number);
      }
      raise(signal_number);
    });
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), signal_number);
  }
}

TEST(InterruptGuard, LeavesAnIgnoredSignalIgnored) {
  EXPECT_EQ(EndOf([] {
              signal(SIGINT, SIG_IGN);
              const InterruptGuard guard;
              raise(SIGINT);
              if (Interrupted() != 0) _exit(1);
              raise(SIGTERM);
              if (Interrupted() != SIGTERM) _exit(2);
              raise(SIGINT);
            }),
            0);
}

TEST(InterruptGuard, LeavesAHangupIgnoredThatNohupIgnores) {
  EXPECT_EQ(EndOf([] {
              signal(SIGHUP, SIG_IGN);
              const InterruptGuard guard;
              raise(SIGHUP);
              if (Interrupted() != 0) _exit(1);
            }),
            0);
}

TEST(InterruptGuard, LetsAReadGoOn) {
  EXPECT_EQ(EndOf([] {
              const InterruptGuard guard;
              int ends[2];
              if (pipe(ends) != 0) _exit(1);
              const pid_t parent = getpid();
              if (fork() == 0) {
                usleep(20'000);
                kill(parent, SIGTERM);
                usleep(20'000);
                _exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
              }
              char byte = 0;
              if (read(ends[0], &byte, 1) != 1) _exit(2);
              if (Interrupted() != SIGTERM) _exit(3);
            }),
            0);
}

}  // namespace
}  // namespace planish::lab
