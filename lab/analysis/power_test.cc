#include "lab/analysis/power.h"

#include <gtest/gtest.h>

#include "lab/analysis/test_runs.h"

namespace planish::lab {
namespace {

// The exact numbers by scipy.stats.nct: the smallest n with 1 - nct.cdf(t.ppf(.975, n - 1), n - 1,
// effect / deviation * sqrt(n)) + nct.cdf(-t.ppf(.975, n - 1), ...) >= .8.
TEST(PowerTest, SeedsAreWithinOneOfTheExactNumber) {
  const std::pair<double, int> exact[] = {{0.5, 5},  {1, 10},  {1.5, 20},
                                          {2.5, 52}, {4, 128}, {8, 505}};
  for (const auto& [deviation, seeds] : exact) {
    const std::optional<int> needed = SeedsNeeded(1, deviation);
    ASSERT_TRUE(needed) << deviation;
    EXPECT_NEAR(*needed, seeds, 1) << deviation;
    EXPECT_EQ(SeedsNeeded(-1, deviation), needed);
  }
}

// Like above, for the one-sided test with t.ppf(.95, n - 1), without the second term.
TEST(PowerTest, OneSidedTestsNeedFewerSeeds) {
  const std::pair<double, int> exact[] = {{0.5, 4},  {1, 8},   {1.5, 16},
                                          {2.5, 41}, {4, 101}, {8, 398}};
  for (const auto& [deviation, seeds] : exact) {
    const std::optional<int> needed = SeedsNeeded(1, deviation, kOneSidedConfidence);
    ASSERT_TRUE(needed) << deviation;
    EXPECT_NEAR(*needed, seeds, 1) << deviation;
  }
}

TEST(PowerTest, NoDeviationNeedsTwoSeedsAndNoEffectNone) {
  EXPECT_EQ(SeedsNeeded(1, 0), 2);
  EXPECT_EQ(SeedsNeeded(0, 1), std::nullopt);
  EXPECT_EQ(SeedsNeeded(0, 0), std::nullopt);
  EXPECT_EQ(SeedsNeeded(1e-9, 1), std::nullopt);
}

TEST(PowerTest, SaysHowManySeedsAColumnNeeds) {
  Runs runs;
  const double layer[] = {.770, .760, .775, .765}, none[] = {.768, .765, .760, .771};
  for (int64_t seed = 1; seed <= 4; ++seed) {
    runs.push_back(ColumnRun("rt", "layer", seed, layer[seed - 1], "rt"));
    runs.push_back(ColumnRun("rt", "none", seed, none[seed - 1], "rt"));
  }
  const std::vector<Section> sections = Summarize(runs);
  const std::vector<Reproduction> reproductions = FindReproductions(sections);
  const std::vector<ClaimPower> rows = PowerOf(reproductions.at(0));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].number, 1);
  EXPECT_EQ(rows[0].column, "RT");
  EXPECT_NEAR(rows[0].effect, 77.21 - 76.85, 1e-12);
  EXPECT_NEAR(rows[0].deviation, 0.9678154093971992, 1e-9);  // numpy.std of the differences, ddof=1
  EXPECT_EQ(rows[0].seeds, 4);
  EXPECT_FALSE(rows[0].is_decided);
  EXPECT_GT(rows[0].needed.value(), 40);
  EXPECT_GT(rows[0].minutes.value(), 0);
}

TEST(PowerTest, AClaimOfNoWorseNeedsSeedsForItsMargin) {
  Runs runs;
  const double simple[] = {.770, .760, .775, .765}, layer[] = {.768, .765, .760, .771};
  for (int64_t seed = 1; seed <= 4; ++seed) {
    runs.push_back(ColumnRun("rt", "layer-simple", seed, simple[seed - 1], "rt"));
    runs.push_back(ColumnRun("rt", "layer", seed, layer[seed - 1], "rt"));
  }
  const std::vector<Section> sections = Summarize(runs);
  const std::vector<Reproduction> reproductions = FindReproductions(sections);
  const std::vector<ClaimPower> rows = PowerOf(reproductions.at(0));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].number, 2);
  EXPECT_TRUE(rows[0].claim->no_worse);
  const Paper& paper = FindPaper("xu2019");
  const double margin =
      paper.MarginOf(*paper.FindColumn("rt"), {{"layer-simple", 1}, {"layer", -1}});
  EXPECT_GT(margin, 0);
  EXPECT_EQ(rows[0].effect, margin);
  EXPECT_EQ(rows[0].needed, SeedsNeeded(margin, rows[0].deviation, kOneSidedConfidence));
  EXPECT_EQ(rows[1].number, 3);
  EXPECT_EQ(rows[1].needed, SeedsNeeded(rows[1].effect, rows[1].deviation));
}

}  // namespace
}  // namespace planish::lab
