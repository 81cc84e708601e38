#include "planish/parallel.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "planish/error.h"
#include "planish/norm.h"
#include "src/norm/testing.h"

namespace {
// Number of threads that can still be started before the system refuses, as with `ulimit -u`.
std::atomic<int> threads_left{std::numeric_limits<int>::max()};
}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left.load() != std::numeric_limits<int>::max() && threads_left.fetch_sub(1) <= 0) {
    return EAGAIN;
  }
  return real(thread, attributes, run, argument);
}

namespace planish {
namespace {

/// Ranges of a call and the threads that ran them.
struct Ranges {
  std::mutex mutex;
  std::vector<int64_t> times;  // calls of each index
  std::set<std::thread::id> threads;
  int calls = 0;
};

void Cover(Ranges& ranges, int64_t n, int64_t grain) {
  ranges.times.assign(static_cast<size_t>(n), 0);
  DefaultParallelFor(0, n, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(ranges.mutex);
    ++ranges.calls;
    ranges.threads.insert(std::this_thread::get_id());
    for (int64_t i = begin; i < end; ++i) ++ranges.times[static_cast<size_t>(i)];
  });
}

class ParallelTest : public ::testing::Test {
 protected:
  ~ParallelTest() override {
    threads_left = std::numeric_limits<int>::max();
    SetThreads(before_);
  }
  int before_ = Threads();
};

TEST_F(ParallelTest, EachIndexOnce) {
  for (const int threads : {1, 2, 3, 7, 16}) {
    SetThreads(threads);
    EXPECT_EQ(Threads(), threads);
    for (const int64_t n : {1, 2, 3, 7, 100, 1001}) {
      for (const int64_t grain : {1, 2, 10, 1000}) {
        Ranges ranges;
        Cover(ranges, n, grain);
        EXPECT_EQ(ranges.times, std::vector<int64_t>(static_cast<size_t>(n), 1))
            << n << " by " << grain << " on " << threads;
        EXPECT_LE(ranges.calls, threads);
        // No range is smaller than a grain, except the last.
        EXPECT_LE(ranges.calls, (n + grain - 1) / grain);
      }
    }
  }
}

TEST_F(ParallelTest, RangesCoverTheGivenInterval) {
  SetThreads(3);
  std::atomic<int64_t> sum = 0;
  DefaultParallelFor(100, 200, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum += i;
  });
  EXPECT_EQ(sum, 14950);  // 100 + 101 + ... + 199
}

TEST_F(ParallelTest, RunsOnSeveralThreads) {
  SetThreads(4);
  Ranges ranges;
  Cover(ranges, 4, 1);
  EXPECT_EQ(ranges.calls, 4);
  EXPECT_EQ(ranges.threads.size(), 4);
  EXPECT_TRUE(ranges.threads.contains(std::this_thread::get_id()));
}

TEST_F(ParallelTest, NestedCallsStayOnTheirThread) {
  SetThreads(3);
  std::atomic<int> done = 0, elsewhere = 0;
  DefaultParallelFor(0, 3, 1, [&](int64_t begin, int64_t end) {
    const auto outer = std::this_thread::get_id();
    for (int64_t i = begin; i < end; ++i) {
      DefaultParallelFor(0, 10, 1, [&](int64_t from, int64_t to) {
        elsewhere += std::this_thread::get_id() != outer;
        done += static_cast<int>(to - from);
      });
    }
  });
  EXPECT_EQ(done, 30);
  EXPECT_EQ(elsewhere, 0);
}

// Each of several concurrent calls completes, with or without the pool.
TEST_F(ParallelTest, ConcurrentCallers) {
  SetThreads(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> done = 0;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        DefaultParallelFor(0, 64, 1, [&](int64_t begin, int64_t end) { done += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done, 4 * 500 * 64);
}

TEST_F(ParallelTest, ManyShortCalls) {
  SetThreads(2);
  int64_t sums[2] = {};
  for (int round = 0; round < 20000; ++round) {
    DefaultParallelFor(0, 2, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sums[i] += round;
    });
  }
  EXPECT_EQ(sums[0], 199990000);
  EXPECT_EQ(sums[1], 199990000);
}

TEST_F(ParallelTest, TheNumberOfThreadsCanChange) {
  for (int round = 0; round < 20; ++round) {
    SetThreads(1 + round % 5);
    Ranges ranges;
    Cover(ranges, 100, 1);
    EXPECT_EQ(ranges.calls, 1 + round % 5);
  }
}

TEST_F(ParallelTest, WrongNumberOfThreads) {
  for (const int threads : {0, -3}) {
    try {
      SetThreads(threads);
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(),
                "[SetThreads] threads must be at least 1, got " + std::to_string(threads));
    }
  }
  EXPECT_EQ(Threads(), before_);
}

TEST_F(ParallelTest, RunsOnTheThreadsThatTheSystemGrants) {
  for (const int granted : {0, 1, 5}) {
    SetThreads(16);
    threads_left = granted;
    for (int round = 0; round < 3; ++round) {
      Ranges ranges;
      Cover(ranges, 100, 1);
      EXPECT_EQ(ranges.times, std::vector<int64_t>(100, 1)) << granted;
      EXPECT_EQ(ranges.calls, granted + 1);
      EXPECT_EQ(Threads(), granted + 1);
    }
    threads_left = std::numeric_limits<int>::max();
  }
  SetThreads(3);  // starts threads again
  Ranges ranges;
  Cover(ranges, 100, 1);
  EXPECT_EQ(ranges.calls, 3);
}

TEST_F(ParallelTest, RefusedThreadsChangeNoBits) {
  const tests::Problem<float> p(Norm::kLayer, 3000, 70);
  SetThreads(1);
  const tests::Result<float> expected = tests::Apply(p);
  for (const int granted : {0, 2, 7}) {
    SetThreads(16);
    threads_left = granted;
    EXPECT_EQ(tests::Apply(p).DiffersIn(expected), "") << granted;
    threads_left = std::numeric_limits<int>::max();
  }
}

TEST_F(ParallelTest, NumbersOfThreadsAreLimited) {
  SetThreads(100'000);
  EXPECT_EQ(Threads(), 1024);
  threads_left = 1;
  Ranges ranges;
  Cover(ranges, 100'000, 1);
  EXPECT_EQ(ranges.calls, 2);
}

/// Returns the index of the range whose exception DefaultParallelFor throws, if the ranges that
/// begin at an element of `failing` throw; -1 without an exception.
int64_t Thrown(Ranges& ranges, const std::set<int64_t>& failing) {
  try {
    ranges.calls = 0;
    DefaultParallelFor(0, 4, 1, [&](int64_t begin, int64_t) {
      if (failing.contains(begin)) throw std::range_error(std::to_string(begin));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const std::lock_guard lock(ranges.mutex);
      ++ranges.calls;
    });
  } catch (const std::range_error& e) {
    return std::stoll(e.what());
  }
  return -1;
}

TEST_F(ParallelTest, ExceptionsReachTheCallerOnceAllRangesHaveEnded) {
  SetThreads(4);
  Ranges ranges;
  EXPECT_EQ(Thrown(ranges, {}), -1);
  for (const int64_t range : {0, 1, 3}) {  // the caller runs range 0
    EXPECT_EQ(Thrown(ranges, {range}), range);
    EXPECT_EQ(ranges.calls, 3) << "the others had not ended";
  }
  EXPECT_EQ(Thrown(ranges, {3, 1}), 1);
  EXPECT_EQ(Thrown(ranges, {0, 1, 2, 3}), 0);
}

TEST_F(ParallelTest, ThreadsGoOnAfterAnException) {
  SetThreads(4);
  Ranges ranges;
  for (const int64_t range : {0, 2}) {
    EXPECT_EQ(Thrown(ranges, {range}), range);
    Ranges next;
    Cover(next, 4, 1);
    EXPECT_EQ(next.threads.size(), 4) << "the calling thread has become serial";
  }
}

TEST_F(ParallelTest, SetThreadsFromATaskIsAnError) {
  SetThreads(3);
  std::atomic<int> errors = 0;
  DefaultParallelFor(0, 3, 1, [&](int64_t, int64_t) {
    try {
      SetThreads(2);
    } catch (const Error& error) {
      if (error.what() == std::string("SetThreads must not be called from within a task")) ++errors;
    }
  });
  EXPECT_EQ(errors, 3);
}

/// Returns the result of `child` in a forked process.
template <class F>
int InChild(F&& child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Threads do not survive a fork: a child computes on its calling thread and can set their number.
TEST_F(ParallelTest, ForkedChildComputes) {
  SetThreads(3);
  Ranges before;
  Cover(before, 100, 1);  // starts the threads
  EXPECT_EQ(InChild([] {
              Ranges ranges;
              Cover(ranges, 100, 1);
              if (ranges.calls != 1) return 1;
              for (const int64_t times : ranges.times) {
                if (times != 1) return 2;
              }
              SetThreads(2);
              Cover(ranges, 100, 1);
              return ranges.times == std::vector<int64_t>(100, 1) ? 0 : 3;
            }),
            0);
  Ranges after;
  Cover(after, 100, 1);  // the parent keeps its threads
  EXPECT_EQ(after.calls, 3);
}

// The child can use the pool even if the parent was using it at the fork.
TEST_F(ParallelTest, ForkedChildComputesWhileAParentThreadDid) {
  SetThreads(2);
  std::atomic<bool> computing = false, done = false;
  std::thread computer([&] {
    DefaultParallelFor(0, 2, 1, [&](int64_t, int64_t) {
      computing = true;
      computing.notify_all();
      done.wait(false);
    });
  });
  computing.wait(false);
  EXPECT_EQ(InChild([] {
              alarm(30);  // ends a child that hangs
              SetThreads(3);
              Ranges ranges;
              Cover(ranges, 100, 1);
              return ranges.times == std::vector<int64_t>(100, 1) ? 0 : 1;
            }),
            0);
  done = true;
  done.notify_all();
  computer.join();
}

TEST(SerialForTest, RunsOnce) {
  int calls = 0;
  SerialFor(3, 9, 1, [&](int64_t begin, int64_t end) {
    ++calls;
    EXPECT_EQ(begin, 3);
    EXPECT_EQ(end, 9);
  });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace planish
