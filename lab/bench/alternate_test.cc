#include "lab/bench/alternate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace planish::bench {
namespace {

TEST(Alternate, CallsEveryBlockOfEach) {
  int first = 0, second = 0;
  const std::vector<double> seconds =
      Alternate({[&] { ++first; }, [&] { ++second; }}, /*blocks=*/5, /*seconds=*/1e-5);
  ASSERT_EQ(seconds.size(), 2u);
  EXPECT_GT(seconds[0], 0);
  EXPECT_GT(seconds[1], 0);
  EXPECT_GE(first, 6);  // one to find the number of calls, and five blocks
  EXPECT_GE(second, 6);
}

TEST(Alternate, TakesFewerBlocksOfLongCalls) {
  int calls = 0;
  const auto call = [&] {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  Alternate({call}, /*blocks=*/5, /*seconds=*/1e-4, /*max_seconds=*/1e-4);
  EXPECT_EQ(calls, 1 + 3);  // one to find the number of calls, and the minimum of blocks
  calls = 0;
  Alternate({call}, /*blocks=*/2, /*seconds=*/1e-4, /*max_seconds=*/1e-4);
  EXPECT_EQ(calls, 1 + 2);
}

}  // namespace
}  // namespace planish::bench
