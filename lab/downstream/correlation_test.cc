#include "lab/downstream/correlation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace planish::lab {
namespace {

// By hand: the means are 2 and 5, the deviations -1 0 1 and -2 -2 4.
TEST(Pearson, MatchesAManualComputation) {
  const std::vector<double> a = {1, 2, 3}, b = {3, 3, 9};
  EXPECT_DOUBLE_EQ(Pearson(a, b), 6 / std::sqrt(2.0 * 24));
  EXPECT_DOUBLE_EQ(Pearson(a, a), 1);
  const std::vector<double> same = {4, 4, 4};
  EXPECT_EQ(Pearson(a, same), 0);
}

// Ranks of b are 1, 1 -> 1.5 each, and 3: Pearson of (1, 2, 3) and (1.5, 1.5, 3) is sqrt(3) / 2.
TEST(Spearman, GivesTiesTheirMeanRank) {
  const std::vector<double> a = {1, 20, 300}, b = {3, 3, 9};
  EXPECT_NEAR(Spearman(a, b), std::sqrt(3.0) / 2, 1e-15);  // some roundings
  const std::vector<double> falling = {5, 4, -8};
  EXPECT_DOUBLE_EQ(Spearman(a, falling), -1);
}

}  // namespace
}  // namespace planish::lab
