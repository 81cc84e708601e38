#include "src/base/cuda_emulation.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "src/base/cuda.h"

namespace planish::internal::emulation {
namespace {

class EmulationTest : public ::testing::TestWithParam<Order> {
 protected:
  void SetUp() override { SetOrder(GetParam()); }
  void TearDown() override { SetOrder(Order::kForward); }
};

INSTANTIATE_TEST_SUITE_P(Orders, EmulationTest,
                         ::testing::Values(Order::kForward, Order::kBackward, Order::kRandom));

TEST_P(EmulationTest, RunsEveryThreadOnce) {
  std::vector<int> runs(2 * 3 * 70);
  RunGrid({2, 3, 1}, 70, 0, false, [&] {
    const Place& here = Here();
    EXPECT_EQ(here.grid_dim.x, 2);
    EXPECT_EQ(here.grid_dim.y, 3);
    EXPECT_EQ(here.block_dim.x, 70);
    ++runs[(here.block.y * 2 + here.block.x) * 70 + here.thread.x];
  });
  EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
}

TEST_P(EmulationTest, BlocksMeetAtBarriers) {
  constexpr int kThreads = 96;
  RunGrid({4, 1, 1}, kThreads, kThreads * sizeof(int), false, [&] {
    int* shared = static_cast<int*>(SharedMemory());
    const int me = static_cast<int>(Here().thread.x);
    for (int turn = 0; turn < 3; ++turn) {
      shared[me] = me * 10 + turn;
      Wait(Scope::kBlock);
      const int other = (me + 37) % kThreads;
      EXPECT_EQ(shared[other], other * 10 + turn);
      Wait(Scope::kBlock);
    }
  });
}

TEST_P(EmulationTest, LanesExchangeValues) {
  RunGrid({1, 1, 1}, 64, 0, false, [&] {
    const int me = static_cast<int>(Here().thread.x);
    const int lane = me % 32;
    int sum = me;
    for (int mask = 16; mask > 0; mask /= 2) sum += FromLane(sum, lane ^ mask);
    EXPECT_EQ(sum, me < 32 ? 31 * 16 : 31 * 16 + 32 * 32);
    EXPECT_EQ(FromLane(me * 0.5, 3), (me / 32 * 32 + 3) * 0.5);
  });
}

TEST_P(EmulationTest, CooperativeGridsMeet) {
  std::vector<int> seen(5, 0);
  RunGrid({5, 1, 1}, 32, 0, true, [&] {
    const auto block = Here().block.x;
    if (Here().thread.x == 0) seen[block] = 1;
    Wait(Scope::kGrid);
    for (const int one : seen) EXPECT_EQ(one, 1);
  });
}

// One that writes and one that waits for it in a loop.
TEST_P(EmulationTest, ThreadsThatYieldSeeWhatOthersWrite) {
  int flag = 0, waited = 0;
  RunGrid({2, 1, 1}, 1, 0, true, [&] {
    if (Here().block.x == 0) {
      while (flag == 0) ++waited, Yield();
    } else {
      flag = 1;
    }
  });
  EXPECT_EQ(flag, 1);
}

TEST_P(EmulationTest, ThreadsThatReturnAreNotWaitedFor) {
  int past = 0;
  RunGrid({1, 1, 1}, 64, 0, false, [&] {
    if (Here().thread.x < 40) return;
    Wait(Scope::kBlock);
    ++past;
  });
  EXPECT_EQ(past, 24);
}

TEST_P(EmulationTest, SharedMemoryHoldsNans) {
  RunGrid({2, 1, 1}, 32, 8, false, [&] {
    float* shared = static_cast<float*>(SharedMemory());
    EXPECT_TRUE(shared[0] != shared[0]);
    Wait(Scope::kBlock);
    shared[0] = 1;  // the next block does not see it
  });
}

TEST_P(EmulationTest, WaitingForEverIsAnError) {
  EXPECT_THROW(RunGrid({1, 1, 1}, 64, 0, false,
                       [&] { Wait(Here().thread.x < 32 ? Scope::kBlock : Scope::kGrid); }),
               std::logic_error);
}

TEST_P(EmulationTest, WhatAThreadThrowsIsThrown) {
  EXPECT_THROW(RunGrid({1, 1, 1}, 64, 0, false,
                       [&] {
                         if (Here().thread.x == 33) throw std::runtime_error("33");
                       }),
               std::runtime_error);
  int runs = 0;  // and another kernel runs after it
  RunGrid({1, 1, 1}, 1, 0, false, [&] { ++runs; });
  EXPECT_EQ(runs, 1);
}

// That what the kernels forget to wait for shows: without the barrier the orders differ.
TEST(Emulation, OrdersShowRaces) {
  std::vector<int> results;
  for (const Order order : {Order::kForward, Order::kBackward}) {
    SetOrder(order);
    int last = 0;
    RunGrid({1, 1, 1}, 32, 0, false, [&] { last = static_cast<int>(Here().thread.x); });
    results.push_back(last);
  }
  SetOrder(Order::kForward);
  EXPECT_EQ(results, (std::vector<int>{31, 0}));
}

// A kernel whose blocks pass a number on, launched as kernels are.
void PassOn(int* numbers) {
  const auto blocks = static_cast<int>(cuda::Blocks()), me = static_cast<int>(cuda::BlockIndex());
  for (int turn = 0; turn < 3; ++turn) {
    const int from_left = numbers[(me + blocks - 1) % blocks];
    cuda::SyncGrid();
    if (cuda::ThreadIndex() == 0) numbers[me] = from_left + 1;
    cuda::SyncGrid();
  }
}

TEST_P(EmulationTest, CooperativeKernelsAreLaunched) {
  const cuda::GridLimits limits = cuda::CooperativeLimits();
  std::vector<int> numbers;
  for (int i = 0; i < limits.blocks; ++i) numbers.push_back(10 * i);
  cuda::RunCooperative("test", PassOn, {.blocks = limits.blocks, .threads = 64}, nullptr,
                       numbers.data());
  for (int i = 0; i < limits.blocks; ++i) {
    const auto from = (i + 3 * limits.blocks - 3) % limits.blocks;
    EXPECT_EQ(numbers[static_cast<size_t>(i)], 10 * from + 3);
  }
}

TEST(Emulation, OutsideAKernelThereIsNoThread) { EXPECT_THROW(Here(), std::logic_error); }

}  // namespace
}  // namespace planish::internal::emulation
