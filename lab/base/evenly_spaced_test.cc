#include "lab/base/evenly_spaced.h"

#include <gtest/gtest.h>

#include <vector>

namespace planish::lab {
namespace {

TEST(EvenlySpaced, TakesTheFirstOfEachPart) {
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6};
  EXPECT_EQ(EvenlySpaced(all, 3), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(EvenlySpaced(all, 6), (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(EvenlySpaced(all, 1), (std::vector<int>{0}));
  EXPECT_EQ(EvenlySpaced(all, 0), (std::vector<int>{}));
}

TEST(EvenlySpaced, TakesAllOfFew) {
  const std::vector<int> all = {3, 1, 2};
  EXPECT_EQ(EvenlySpaced(all, 3), all);
  EXPECT_EQ(EvenlySpaced(all, 1000), all);
  EXPECT_EQ(EvenlySpaced(std::vector<int>(), 2), std::vector<int>());
}

}  // namespace
}  // namespace planish::lab
