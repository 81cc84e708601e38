#include "src/base/cuda/team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "src/base/cuda/emulation.h"

namespace planish::internal::cuda {
namespace {

using emulation::Order;

// Results of a thread of a team in each turn: a sum of one value, a sum of two, the maximum, and
// the first value.
struct Results {
  float sum, sum_of_two, other_of_two, max, first;

  bool operator==(const Results&) const = default;
};

constexpr int kTurns = 3;

// Value of a thread in a turn. No two successive turns have equal sums.
PLANISH_DEVICE float ValueOf(int lane, int turn) {
  return std::sin(static_cast<float>(lane * 7 + turn)) * static_cast<float>(turn + 1);
}

template <class AnyTeam>
void Query(AnyTeam& team, Results* results) {
  EXPECT_EQ(team.groups() * team.count() * team.size(), Blocks() * BlockThreads());
  const int64_t team_index = team.group() * team.count() + team.index();
  Results* own = results + (team_index * team.size() + team.lane()) * kTurns;
  for (int turn = 0; turn < kTurns; ++turn) {
    const float value = ValueOf(team.lane(), turn);
    Results& now = own[turn] = {.sum = value, .sum_of_two = -value, .other_of_two = 2 * value};
    team.Sum(now.sum);
    now.first = team.First(value);
    team.Sum(now.sum_of_two, now.other_of_two);
    now.max = team.Max(value);
  }
}

void QueryCluster(Results* results) {
  ClusterTeam<2> team;
  EXPECT_EQ(team.size(), ClusterBlocks() * BlockThreads());
  Query(team, results);
}

void QueryBlock(Results* results) {
  WarpsTeam<2> team;
  EXPECT_EQ(team.size(), BlockThreads());
  Query(team, results);
}

void QueryLanes(Results* results, int size) {
  LanesTeam team(size);
  Query(team, results);
}

// Checks that all threads of teams of `size` have the same results, with the right values.
void ExpectSameResults(const std::vector<Results>& results, int size) {
  for (size_t i = kTurns; i < results.size(); ++i) {
    ASSERT_EQ(results[i], results[i % kTurns]) << size << ' ' << i / kTurns;
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    const Results& now = results[static_cast<size_t>(turn)];
    double sum = 0, sizes = 0;
    float max = ValueOf(0, turn);
    for (int lane = 0; lane < size; ++lane) {
      const float value = ValueOf(lane, turn);
      sum += value;
      sizes += std::abs(value);
      max = std::max(max, value);
    }
    // A value is rounded in 5 sums in its warp, 5 over warps, and at most 7 over blocks.
    EXPECT_NEAR(now.sum, sum, sizes * 17 * 0x1p-24);
    EXPECT_EQ(now.sum_of_two, -now.sum);
    EXPECT_EQ(now.other_of_two, 2 * now.sum);
    EXPECT_EQ(now.max, max);
    EXPECT_EQ(now.first, ValueOf(0, turn));
  }
}

// Writes the sums that each thread of the first row gets in two turns.
template <int kRowThreads>
void SumMatrix(double* sums) {
  const ThreadMatrix block(kRowThreads);
  for (int turn = 0; turn < 2; ++turn) {
    const double first[2] = {block.thread + 0.5, block.thread * 2.0 + turn};
    const double second[2] = {-1.0 * block.thread, 1.0};
    block.SumColumns(first, second);
    if (block.y > 0) continue;
    for (int i = 0; i < 4; ++i)
      sums[(turn * 4 + i) * kRowThreads + block.x] = block.Sum(i % 2, i / 2);
  }
}

void SumWarps(double* sums) {
  const double sum = SumOverWarps<4>(ThreadIndex());
  if (ThreadIndex() < kWarpThreads) sums[ThreadIndex()] = sum;
}

class ClusterTeamTest : public ::testing::TestWithParam<Order> {
 protected:
  void SetUp() override { emulation::SetOrder(GetParam()); }
  void TearDown() override { emulation::SetOrder(Order::kForward); }
};

INSTANTIATE_TEST_SUITE_P(Orders, ClusterTeamTest,
                         ::testing::Values(Order::kForward, Order::kBackward, Order::kRandom));

// All threads get the same bits, in any order of threads.
TEST_P(ClusterTeamTest, AllThreadsGetTheSameResults) {
  constexpr int kClusters = 3;
  for (const int blocks : {2, 4, 8}) {
    for (const int threads : {32, 64, 96}) {
      const int size = blocks * threads;
      std::vector<Results> results(static_cast<size_t>(kClusters * size * kTurns));
      const auto run = [&] {
        cuda::Run("test", QueryCluster,
                  {.blocks = kClusters * blocks,
                   .threads = threads,
                   .shared_bytes = ClusterTeam<2>::kSharedBytes,
                   .cluster = blocks},
                  nullptr, results.data());
      };
      run();
      ExpectSameResults(results, size);
      const std::vector<Results> in_this_order = results;
      emulation::SetOrder(Order::kForward);
      run();
      emulation::SetOrder(GetParam());
      EXPECT_EQ(results, in_this_order);
    }
  }
}

// Teams are the warps of a block, then parts of a warp.
TEST_P(ClusterTeamTest, ThreadsOfABlockGetTheSameResults) {
  constexpr int kBlocks = 2;
  for (const int threads : {32, 64, 96, 160, 1024}) {
    std::vector<Results> results(static_cast<size_t>(kBlocks * threads * kTurns));
    cuda::Run("test", QueryBlock,
              {.blocks = kBlocks, .threads = threads, .shared_bytes = WarpsTeam<2>::kSharedBytes},
              nullptr, results.data());
    ExpectSameResults(results, threads);
  }
  for (const int size : {1, 2, 4, 8, 16, 32}) {
    constexpr int kThreads = 64;
    std::vector<Results> results(static_cast<size_t>(kBlocks * kThreads * kTurns));
    cuda::Run("test", QueryLanes, {.blocks = kBlocks, .threads = kThreads}, nullptr, results.data(),
              size);
    ExpectSameResults(results, size);
  }
}

TEST_P(ClusterTeamTest, ThreadMatrixSumsItsColumns) {
  constexpr int kThreads = 64, kRowThreads = 8, kRows = kThreads / kRowThreads;
  std::vector<double> sums(8 * kRowThreads);
  cuda::Run("test", SumMatrix<kRowThreads>,
            {.threads = kThreads, .shared_bytes = 4 * kThreads * sizeof(double)}, nullptr,
            sums.data());
  for (int turn = 0; turn < 2; ++turn) {
    for (int x = 0; x < kRowThreads; ++x) {
      const auto at = [&](int i) {
        return sums[static_cast<size_t>((turn * 4 + i) * kRowThreads + x)];
      };
      double threads = 0;  // sum of the indices of the column's threads
      for (int y = 0; y < kRows; ++y) threads += y * kRowThreads + x;
      EXPECT_EQ(at(0), threads + 0.5 * kRows);
      EXPECT_EQ(at(1), -threads);
      EXPECT_EQ(at(2), 2 * threads + turn * kRows);
      EXPECT_EQ(at(3), kRows);
    }
  }
}

TEST_P(ClusterTeamTest, FirstWarpGetsTheSumsOverWarps) {
  constexpr int kThreads = 4 * kWarpThreads;
  std::vector<double> sums(kWarpThreads);
  cuda::Run("test", SumWarps, {.threads = kThreads, .shared_bytes = kThreads * sizeof(double)},
            nullptr, sums.data());
  for (int lane = 0; lane < kWarpThreads; ++lane) {
    EXPECT_EQ(sums[static_cast<size_t>(lane)], 4 * lane + 6 * kWarpThreads);
  }
}

}  // namespace
}  // namespace planish::internal::cuda
