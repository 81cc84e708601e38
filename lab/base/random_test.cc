#include "lab/base/random.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <random>
#include <vector>

namespace planish::lab {
namespace {

// The upper halves of std::mt19937_64(1)'s outputs, 2469588189546311528 and so on, times n over
// 2^32.
TEST(Choose, IsTheSameEverywhere) {
  std::mt19937_64 random(1), same(1);
  for (const size_t n : {1, 2, 10, 1000, 1 << 20}) {
    const double part = static_cast<double>(same() >> 32) * 0x1p-32;
    EXPECT_EQ(Choose(random, n), static_cast<size_t>(part * static_cast<double>(n))) << n;
  }
}

TEST(Choose, DrawsNumbersUniformly) {
  std::mt19937_64 random(7);
  std::vector<int> counts(6);
  for (int i = 0; i < 60000; ++i) ++counts[Choose(random, counts.size())];
  // Six standard deviations of a count are 548.
  for (const int count : counts) EXPECT_NEAR(count, 10000, 548);
}

TEST(Shuffle, MakesEachOrderAsOften) {
  std::mt19937_64 random(7);
  std::map<std::vector<int>, int> counts;
  for (int i = 0; i < 60000; ++i) {
    std::vector<int> items = {0, 1, 2};
    Shuffle(items, random);
    ++counts[items];
  }
  ASSERT_EQ(counts.size(), 6);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 10000, 548);
}

TEST(Shuffle, LeavesNoneAndOne) {
  std::mt19937_64 random(7);
  std::vector<int> none, one = {3};
  Shuffle(none, random);
  Shuffle(one, random);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(one, std::vector<int>{3});
  EXPECT_EQ(random(), std::mt19937_64(7)()) << "nothing was chosen";
}

}  // namespace
}  // namespace planish::lab
