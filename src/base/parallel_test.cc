#include "planish/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "planish/error.h"

namespace planish {
namespace {

/// The ranges of a call and the threads that ran them.
struct Ranges {
  std::mutex mutex;
  std::vector<int64_t> times;  // that each index was met
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
  ~ParallelTest() override { SetThreads(before_); }
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
        // No range is worth less than a grain.
        EXPECT_LE(ranges.calls, (n + grain - 1) / grain);
      }
    }
  }
}

TEST_F(ParallelTest, RangesStartWhereTheyAreTold) {
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

// Callers beside each other each get their work done, whoever has the pool.
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

TEST_F(ParallelTest, TheNumberOfThreadsMayChange) {
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
                "[SetThreads] threads must be at least 1 but has " + std::to_string(threads));
    }
  }
  EXPECT_EQ(Threads(), before_);
}

/// What `child` returns in a process of its own, forked from this one.
template <class F>
int InChild(F&& child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The threads do not come along: a child computes on its own one, and may set their number.
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
  Cover(after, 100, 1);  // the parent has its threads still
  EXPECT_EQ(after.calls, 3);
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
