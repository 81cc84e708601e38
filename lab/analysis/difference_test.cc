#include "lab/analysis/difference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lab/analysis/test_runs.h"

namespace planish::lab {
namespace {

TEST(DifferenceTest, EqualRunsDoNotDiffer) {
  const lab::Run run = FinishedRun("layer", 4, 1, {0.5, 0.25});
  EXPECT_TRUE(Difference(run, run).IsSame());
  EXPECT_TRUE(Difference(run, run).machine.empty());
  EXPECT_TRUE(Difference(StartedRun("layer", 4, 1), StartedRun("layer", 4, 1)).IsSame());
}

TEST(DifferenceTest, MachineDoesNotCount) {
  const lab::Run a = FinishedRun("layer", 4, 1, {0.5});
  lab::Run b = a;
  b.config.stamps["cpu"] = "another processor";
  b.result->seconds += 1;
  for (Evaluation& evaluation : b.evaluations) evaluation.seconds += 1;
  const RunDifference difference = Difference(a, b);
  EXPECT_TRUE(difference.IsSame());
  ASSERT_EQ(difference.machine.size(), 2U);
  EXPECT_EQ(difference.machine[0].name, "cpu");
  EXPECT_EQ(difference.machine[0].b, "another processor");
  EXPECT_EQ(difference.machine[1].name, "seconds");
}

TEST(DifferenceTest, NamesSettingsThatOneRunLacks) {
  const lab::Run a = StartedRun("layer", 4, 1);
  lab::Run b = StartedRun("none", 4, 2);
  b.config.settings["extra"] = true;
  const auto settings = Difference(a, b).settings;
  ASSERT_EQ(settings.size(), 3U);
  EXPECT_EQ(settings[0].name, "seed");
  EXPECT_EQ(settings[1].name, "norm");
  EXPECT_EQ(settings[1].a, "layer");
  EXPECT_EQ(settings[1].b, "none");
  EXPECT_EQ(settings[2].name, "extra");
  EXPECT_EQ(settings[2].a, "-");
  EXPECT_EQ(settings[2].b, "true");
}

TEST(DifferenceTest, CurvesPartAtTheFirstDifferentBit) {
  const lab::Run a = FinishedRun("layer", 4, 1, {0.5, 0.25, 0.125, 0.25});
  const lab::Run b = FinishedRun("layer", 4, 1, {0.5, std::nextafter(0.25, 1), 0.5});
  const RunDifference difference = Difference(a, b);
  EXPECT_FALSE(difference.IsSame());
  EXPECT_TRUE(difference.settings.empty());
  const auto curve = std::ranges::find(difference.curves, "test_error", &CurveDifference::metric);
  ASSERT_NE(curve, difference.curves.end());
  EXPECT_EQ(curve->common, 3);
  EXPECT_EQ(curve->only_a, 1);
  EXPECT_EQ(curve->only_b, 0);
  ASSERT_TRUE(curve->first && curve->largest);
  EXPECT_EQ(curve->first->step, 200);
  EXPECT_EQ(curve->largest->step, 300);
  EXPECT_EQ(curve->largest->a, 0.125);
  EXPECT_EQ(curve->largest->b, 0.5);
}

TEST(DifferenceTest, RunsOfOtherTasksHaveNoCommonSteps) {
  const lab::Run a = FinishedRun("layer", 4, 1, {0.5});
  lab::Run b = a;
  b.config.task = "other";
  b.config.data.sha256 = std::string(64, 'f');
  b.config.metrics = {{"bits", "bits", "", true}};
  b.evaluations[0].values = {{"bits", 1.0}};
  const RunDifference difference = Difference(a, b);
  EXPECT_EQ(difference.settings[0].name, "task");
  EXPECT_EQ(difference.data[0].name, "sha256");
  for (const CurveDifference& curve : difference.curves) {
    EXPECT_EQ(curve.common, 0);
    EXPECT_FALSE(curve.first);
    EXPECT_EQ(curve.only_b, curve.metric == "bits" ? 1 : 0);
  }
  EXPECT_EQ(difference.curves.size(), 5U);
}

TEST(DifferenceTest, UnfinishedRunLacksResults) {
  const auto results =
      Difference(FinishedRun("layer", 4, 1, {0.5}), StartedRun("layer", 4, 1)).results;
  EXPECT_EQ(results[0].name, "status");
  EXPECT_EQ(results[0].b, "unfinished");
  for (size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i].b, "-") << results[i].name;
}

}  // namespace
}  // namespace planish::lab
