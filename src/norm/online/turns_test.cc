#include "src/norm/online/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

namespace planish::internal {
namespace {

/// Work whose turns write to unsynchronized variables. A race on them loses elements of `order`,
/// and -fsanitize=thread reports it.
class Work {
 public:
  explicit Work(int64_t count) : turns_(count), prepared_(static_cast<size_t>(count)) {}

  /// Processes the turns first, first + step, ..., and turns that nobody has taken, as
  /// OnlineNormForward does. Prepares a turn before the turns in front of it are complete.
  void Run(int64_t first, int64_t step) {
    const auto process = [&](int64_t turn) {
      Prepare(turn);
      Complete(turn);
      ++taken_over_;
    };
    int64_t turn = turns_.TakeFrom(first, step);
    if (turn < turns_.count()) Prepare(turn);
    while (turn < turns_.count()) {
      turns_.Await(turn, process);
      Complete(turn);
      turn = turns_.TakeFrom(turn + step, step);
      if (turn < turns_.count()) Prepare(turn);
    }
    turns_.Await(turns_.count(), process);
  }

  /// Returns the turns in the order of their completion.
  const std::vector<int64_t>& order() const { return order_; }
  /// Returns the number of turns that Await processed.
  int64_t taken_over() const { return taken_over_; }

  /// Expects that each turn was prepared once and completed in order.
  void ExpectComplete() const {
    std::vector<int64_t> all(prepared_.size());
    std::iota(all.begin(), all.end(), int64_t{0});
    EXPECT_EQ(order_, all);
    EXPECT_THAT(prepared_, testing::Each(1));
  }

 private:
  void Prepare(int64_t turn) { ++prepared_[static_cast<size_t>(turn)]; }
  void Complete(int64_t turn) {
    order_.push_back(turn);
    turns_.Complete(turn);
  }

  Turns turns_;
  std::vector<int> prepared_;
  std::vector<int64_t> order_;
  std::atomic<int64_t> taken_over_ = 0;
};

TEST(TurnsTest, TakesEachTurnOnce) {
  Turns turns(5);
  EXPECT_TRUE(turns.Take(2));
  EXPECT_FALSE(turns.Take(2));
  EXPECT_EQ(turns.TakeFrom(0, 2), 0);
  EXPECT_EQ(turns.TakeFrom(0, 2), 4);  // 0 and 2 are taken
  EXPECT_EQ(turns.TakeFrom(1, 2), 1);
  EXPECT_EQ(turns.TakeFrom(1, 2), 3);
  EXPECT_GE(turns.TakeFrom(0, 1), turns.count());
}

TEST(TurnsTest, AwaitProcessesFreeTurnsInOrder) {
  Turns turns(4);
  ASSERT_TRUE(turns.Take(3));
  std::vector<int64_t> processed;
  turns.Await(3, [&](int64_t turn) {
    processed.push_back(turn);
    turns.Complete(turn);
  });
  EXPECT_THAT(processed, testing::ElementsAre(0, 1, 2));
  turns.Complete(3);
  turns.Await(4, [](int64_t turn) { ADD_FAILURE() << "turn " << turn << " is complete"; });
}

TEST(TurnsTest, AwaitReturnsAfterAnotherThreadCompletesItsTurn) {
  Turns turns(2);
  ASSERT_TRUE(turns.Take(0));
  int state = 0;  // passed on without synchronization of its own
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the waiting thread sleeps by now
    state = 7;
    turns.Complete(0);
  });
  turns.Await(1, [](int64_t turn) { ADD_FAILURE() << "turn " << turn << " is taken"; });
  EXPECT_EQ(state, 7);
  other.join();
}

TEST(TurnsTest, ThreadsCompleteTurnsInOrder) {
  for (const int64_t count : {1, 2, 7, 1000}) {
    for (const int64_t threads : {1, 2, 3, 5}) {
      SCOPED_TRACE(testing::Message() << count << " turns, " << threads << " threads");
      Work work(count);
      std::vector<std::thread> running;
      for (int64_t i = 0; i < threads; ++i) running.emplace_back([&, i] { work.Run(i, threads); });
      for (std::thread& thread : running) thread.join();
      work.ExpectComplete();
    }
  }
}

TEST(TurnsTest, OneThreadCanRunAllRangesOneAfterTheOther) {
  Work work(20);
  for (int64_t i = 0; i < 3; ++i) work.Run(2 - i, 3);
  work.ExpectComplete();
  EXPECT_GT(work.taken_over(), 0);
}

TEST(TurnsTest, TurnsOfAThreadThatStartsLateAreTakenOver) {
  Work work(30);
  work.Run(1, 2);
  work.ExpectComplete();
  EXPECT_EQ(work.taken_over(), 15);
  std::thread late([&] { work.Run(0, 2); });
  late.join();
  work.ExpectComplete();
}

}  // namespace
}  // namespace planish::internal
