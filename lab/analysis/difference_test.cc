#include "lab/analysis/difference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

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

lab::Run WithPredictions(std::vector<std::string> columns, std::vector<std::vector<int64_t>> values,
                         std::vector<int64_t> items = {}) {
  lab::Run run = FinishedRun("layer", 4, 1, {0.5});
  Predictions predictions = PredictionsOf(std::move(columns), std::move(values));
  if (!items.empty()) predictions.items = std::move(items);
  run.predictions = std::make_shared<Predictions>(std::move(predictions));
  return run;
}

TEST(DifferenceTest, CountsItemsByTheRunThatIsRight) {
  const std::vector<std::string> columns = {"label", "prediction"};
  const std::vector<int64_t> labels = {0, 1, 2, 3, 0, 1, 2, 3};
  const lab::Run a = WithPredictions(columns, {labels, {0, 1, 2, 0, 1, 1, 0, 1}});
  const lab::Run b = WithPredictions(columns, {labels, {0, 2, 0, 0, 0, 1, 1, 3}});
  // Items 1 and 2: only a is right. 4 and 7: only b. 6: both are wrong, with different classes. 3:
  // both are wrong with the same class.
  const RunDifference difference = Difference(a, b);
  ASSERT_TRUE(difference.predictions && difference.predictions->right);
  EXPECT_EQ(difference.predictions->common, 8);
  EXPECT_EQ(difference.predictions->differ, 5);
  EXPECT_EQ(difference.predictions->right->a, 2);
  EXPECT_EQ(difference.predictions->right->b, 2);
  EXPECT_EQ(difference.predictions->right->neither, 1);
  EXPECT_FALSE(difference.IsSame());
  EXPECT_TRUE(Difference(a, a).IsSame());
  EXPECT_TRUE(Difference(a, a).predictions->IsSame());
}

TEST(DifferenceTest, ComparesCommonItems) {
  const std::vector<std::string> columns = {"label", "prediction"};
  const lab::Run a = WithPredictions(columns, {{0, 1, 1}, {0, 0, 1}}, {2, 5, 9});
  const lab::Run b = WithPredictions(columns, {{0, 1, 0}, {0, 1, 0}}, {2, 5, 7});
  const PredictionDifference difference = *Difference(a, b).predictions;
  EXPECT_EQ(difference.common, 2);
  EXPECT_EQ(difference.only_a, 1);
  EXPECT_EQ(difference.only_b, 1);
  EXPECT_EQ(difference.differ, 1);
  EXPECT_EQ(difference.right->b, 1);
  // The item 5 has another class: it is another sentence.
  const lab::Run other = WithPredictions(columns, {{0, 0, 1}, {0, 1, 0}}, {2, 5, 7});
  EXPECT_EQ(Difference(a, other).predictions->left_out, "they are of different test items");
}

TEST(DifferenceTest, ComparesTheCountsOfAParser) {
  const std::vector<std::string> columns = {"words", "heads", "labelled_heads"};
  const lab::Run a = WithPredictions(columns, {{5, 3, 4}, {4, 3, 2}, {3, 3, 2}});
  const lab::Run b = WithPredictions(columns, {{5, 3, 4}, {4, 3, 1}, {2, 3, 1}});
  const PredictionDifference difference = *Difference(a, b).predictions;
  EXPECT_EQ(difference.common, 3);
  EXPECT_EQ(difference.differ, 2);
  EXPECT_FALSE(difference.right);
}

TEST(DifferenceTest, SaysWhyPredictionsAreNotCompared) {
  const lab::Run a = WithPredictions({"label", "prediction"}, {{0, 1}, {0, 1}});
  const auto why = [&](const lab::Run& b) { return Difference(a, b).predictions->left_out; };
  lab::Run b = a;
  b.predictions = nullptr;
  EXPECT_EQ(why(b), "the second run has none");
  EXPECT_TRUE(Difference(a, b).IsSame()) << "runs of earlier versions have none";
  EXPECT_FALSE(Difference(b, b).predictions);
  b.predictions_fault = "it ends early";
  EXPECT_EQ(why(b), "those of the second run cannot be read (it ends early)");
  b = a;
  b.config.task = "other";
  EXPECT_EQ(why(b), "the runs are of different tasks");
  b = a;
  b.config.data.sha256 = "other";
  EXPECT_EQ(why(b), "the runs have different data");
  b = WithPredictions({"words", "heads"}, {{5, 3}, {4, 3}});
  EXPECT_EQ(why(b), "they have different columns");
}

}  // namespace
}  // namespace planish::lab
