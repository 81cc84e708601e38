#include "src/base/cuda/emulation.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "src/base/cuda/kernel.h"

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

// One thread writes, another polls.
TEST_P(EmulationTest, YieldingThreadsSeeWritesOfOthers) {
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
    shared[0] = 1;  // invisible to the next block
  });
}

TEST_P(EmulationTest, WaitingForEverIsAnError) {
  EXPECT_THROW(RunGrid({1, 1, 1}, 64, 0, false,
                       [&] { Wait(Here().thread.x < 32 ? Scope::kBlock : Scope::kGrid); }),
               std::logic_error);
}

TEST_P(EmulationTest, ExceptionsOfThreadsAreRethrown) {
  EXPECT_THROW(RunGrid({1, 1, 1}, 64, 0, false,
                       [&] {
                         if (Here().thread.x == 33) throw std::runtime_error("33");
                       }),
               std::runtime_error);
  int runs = 0;  // a kernel can run afterwards
  RunGrid({1, 1, 1}, 1, 0, false, [&] { ++runs; });
  EXPECT_EQ(runs, 1);
}

TEST_P(EmulationTest, ClustersMeetAndReachEachOther) {
  constexpr int kBlocks = 4;
  std::vector<int> runs(8 * 2);
  RunGrid(
      {8, 2, 1}, 40, 2 * sizeof(int), false,
      [&] {
        const int rank = ClusterRank();
        EXPECT_EQ(ClusterBlocks(), kBlocks);
        EXPECT_EQ(rank, Here().block.x % kBlocks);
        int* shared = static_cast<int*>(SharedMemory());
        const auto number = [](unsigned block) {
          return static_cast<int>(10 * block + Here().block.y);
        };
        if (Here().thread.x == 3) shared[1] = number(Here().block.x);
        Wait(Scope::kCluster);
        for (int b = 0; b < kBlocks; ++b) {
          const int there = *static_cast<int*>(OfBlock(shared + 1, b));
          EXPECT_EQ(there, number(Here().block.x / kBlocks * kBlocks + static_cast<unsigned>(b)));
        }
        Wait(Scope::kCluster);
        if (Here().thread.x == 0) ++runs[Here().block.y * 8 + Here().block.x];
      },
      kBlocks);
  EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
}

// A GPU does not guarantee a block's shared memory before it starts and after it returns.
TEST_P(EmulationTest, BlocksThatHaveNotBegunAreNotReached) {
  EXPECT_THROW(RunGrid(
                   {2, 1, 1}, 32, 8, false, [] { OfBlock(SharedMemory(), 1 - ClusterRank()); }, 2),
               std::logic_error);
}

TEST_P(EmulationTest, BlocksThatHaveReturnedAreNotReached) {
  const auto run = [](bool writes) {
    RunGrid(
        {2, 1, 1}, 32, 8, false,
        [=] {
          Wait(Scope::kCluster);
          void* other = OfBlock(SharedMemory(), 1 - ClusterRank());
          Wait(Scope::kCluster);
          if (ClusterRank() == 0 || Here().thread.x > 0) return;
          Yield();  // the other block, which is not waiting, runs
          Yield();
          const float there = *static_cast<float*>(other);
          EXPECT_TRUE(there != there);
          if (writes) {
            *static_cast<float*>(other) = 1;
          } else {
            OfBlock(SharedMemory(), 0);
          }
        },
        2);
  };
  EXPECT_THROW(run(false), std::logic_error);
  EXPECT_THROW(run(true), std::logic_error);
}

TEST_P(EmulationTest, ThreadsOfAClusterThatReturnAreNotWaitedFor) {
  int past = 0;
  RunGrid(
      {2, 1, 1}, 64, 0, false,
      [&] {
        if (ClusterRank() == 0 && Here().thread.x < 40) return;
        Wait(Scope::kCluster);
        ++past;
      },
      2);
  EXPECT_EQ(past, 64 + 24);
}

TEST_P(EmulationTest, MistakesWithClustersAreErrors) {
  // Part of a block waits for the block, and the block for the cluster.
  EXPECT_THROW(RunGrid(
                   {2, 1, 1}, 64, 0, false,
                   [] {
                     const bool block = ClusterRank() == 1 && Here().thread.x < 32;
                     Wait(block ? Scope::kBlock : Scope::kCluster);
                   },
                   2),
               std::logic_error);
  const auto none = [] {};
  EXPECT_THROW(RunGrid({6, 1, 1}, 32, 0, false, none, 4), std::logic_error);
  for (const int rank : {-1, 2}) {
    EXPECT_THROW(RunGrid(
                     {2, 1, 1}, 32, 8, false, [&] { OfBlock(SharedMemory(), rank); }, 2),
                 std::logic_error);
  }
  EXPECT_THROW(RunGrid(
                   {2, 1, 1}, 32, 8, false,
                   [] {
                     Wait(Scope::kCluster);
                     int here = 0;
                     OfBlock(&here, 0);
                   },
                   2),
               std::logic_error);
}

// Kernel whose clusters add the values of their blocks.
void SumOverCluster(int* numbers) {
  int* shared = cuda::SharedMemory<int>();
  if (cuda::ThreadIndex() == 0) *shared = numbers[cuda::BlockIndex()];
  cuda::SyncCluster();
  int sum = 0;
  for (int b = 0; b < cuda::ClusterBlocks(); ++b) sum += *cuda::OfBlock(shared, b);
  cuda::SyncCluster();
  if (cuda::ThreadIndex() == 0 && cuda::ClusterRank() == 0) numbers[cuda::BlockIndex()] = sum;
}

TEST_P(EmulationTest, KernelsOfClustersAreLaunched) {
  std::vector<int> numbers = {1, 2, 3, 4, 5, 6, 7, 8};
  cuda::Run("test", SumOverCluster,
            {.blocks = 8, .threads = 64, .shared_bytes = sizeof(int), .cluster = 4}, nullptr,
            numbers.data());
  EXPECT_EQ(numbers, (std::vector<int>{10, 2, 3, 4, 26, 6, 7, 8}));
}

// A copy is visible only after WaitForCopies, and has the bytes of that time.
TEST_P(EmulationTest, CopiesAreThereOnceWaitedFor) {
  std::vector<float> numbers(64);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  int right = 0;
  RunGrid({2, 1, 1}, 32, 32 * sizeof(float), false, [&] {
    float* const own = static_cast<float*>(SharedMemory()) + Here().thread.x;
    const float* const from = &numbers[Here().block.x * 32 + Here().thread.x];
    CopyLater(from, own, sizeof(float));
    Wait(Scope::kBlock);
    const bool there = *own == *own;
    WaitForCopies();
    right += !there && *own == *from;
    CopyLater(from, own, sizeof(float));  // is dropped before the next block
  });
  EXPECT_EQ(right, 64);
}

// Without the barrier, orders give different results.
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

// Kernel whose blocks pass on a value.
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
