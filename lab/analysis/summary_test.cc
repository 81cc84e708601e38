#include "lab/analysis/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lab/analysis/test_runs.h"

namespace planish::lab {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

const MetricSpec kTestError = {"test_error", "test error", "%", true};
const MetricSpec kAccuracy = {"accuracy", "accuracy", "", false};

std::vector<std::string> GroupValues(const Panel& panel) {
  std::vector<std::string> values;
  for (const Group& group : panel.groups) values.push_back(group.value);
  return values;
}

TEST(SummaryTest, GroupsRunsByAllSettingsButTheSeed) {
  Runs runs;
  for (const int batch_size : {128, 4}) {
    for (const char* norm : {"layer", "batch", "none"}) {
      for (const int64_t seed : {2, 1}) runs.push_back(FinishedRun(norm, batch_size, seed, {.1}));
    }
  }
  const std::vector<Section> sections = Summarize(runs);
  ASSERT_THAT(sections, SizeIs(1));
  ASSERT_THAT(sections[0].panels, SizeIs(2));
  EXPECT_EQ(sections[0].panels[0].title, "batch size 4");
  EXPECT_EQ(sections[0].panels[1].title, "batch size 128");
  EXPECT_THAT(GroupValues(sections[0].panels[0]), ElementsAre("none", "batch", "layer"));
  EXPECT_THAT(sections[0].panels[0].groups[0].runs, SizeIs(2));
  EXPECT_EQ(sections[0].panels[0].groups[0].runs[0]->config.seed, 1);
  EXPECT_THAT(sections[0].common, ElementsAre("lr 0.001", "preset small"));
  EXPECT_THAT(sections[0].varying, ElementsAre(std::pair("norm", "none, batch, layer"),
                                               std::pair("batch_size", "4, 128")));
}

TEST(SummaryTest, EachValueOfAnotherSettingHasAPanel) {
  Runs runs = {FinishedRun("none", 4, 1, {.1}), FinishedRun("none", 4, 1, {.2})};
  runs[1].config.settings["lr"] = 0.01;
  const std::vector<Section> sections = Summarize(runs);
  ASSERT_THAT(sections[0].panels, SizeIs(2));
  EXPECT_EQ(sections[0].panels[1].title, "batch size 4, lr 0.01");
}

TEST(SummaryTest, EmptySettingsAreOnlyShownBesideOthers) {
  Runs runs = {FinishedRun("none", 4, 1, {.1}), FinishedRun("none", 4, 2, {.2})};
  for (auto& run : runs) run.config.settings["text"] = run.config.settings["label"] = "";
  EXPECT_THAT(Summarize(runs)[0].common,
              ElementsAre("norm none", "batch size 4", "lr 0.001", "preset small"));
  runs[1].config.settings["label"] = "rating";
  const Section section = Summarize(runs)[0];
  EXPECT_THAT(section.varying, ElementsAre(std::pair("label", "\"\", rating")));
  ASSERT_THAT(section.panels, SizeIs(2));
  EXPECT_EQ(section.panels[0].title, "batch size 4, label \"\"");
  EXPECT_EQ(section.panels[1].title, "batch size 4, label rating");
}

TEST(SummaryTest, RunsWithOtherUnitsAreNeverPooled) {
  Runs runs = {FinishedRun("none", 4, 1, {.1}), FinishedRun("none", 4, 2, {.2})};
  EXPECT_EQ(Summarize(runs)[0].data, runs[0].config.data.name);
  const auto metric =
      std::ranges::find(runs[1].config.metrics, runs[1].config.report.headline, &MetricSpec::name);
  metric->unit = "bits/byte";
  const std::vector<Section> sections = Summarize(runs);
  ASSERT_THAT(sections, SizeIs(2));
  EXPECT_EQ(sections[1].data, runs[0].config.data.name + ", points");
  EXPECT_EQ(sections[0].data, runs[0].config.data.name + ", bits/byte");
  EXPECT_EQ(HeadlineUnit(*sections[0].config), "bits/byte");
}

TEST(SummaryTest, SettingsInAnotherOrderAreTheSameSettings) {
  Runs runs = {FinishedRun("none", 4, 1, {.1}), FinishedRun("none", 4, 2, {.2})};
  runs[1].config.settings = {{"lr", 0.001}, {"batch_size", 4}, {"norm", "none"}};
  EXPECT_THAT(Summarize(runs)[0].panels, SizeIs(1));
}

TEST(SummaryTest, RunsOnOtherDataAreNeverPooled) {
  Runs runs = {FinishedRun("none", 4, 1, {.1}), FinishedRun("none", 4, 2, {.2}),
               FinishedRun("none", 4, 3, {.3})};
  runs[1].config.data.name = "drawn digits";
  runs[2].config.data.sha256 = "def456";
  EXPECT_THAT(Summarize(runs), SizeIs(3));
  runs[0].config.task = "other";
  EXPECT_EQ(Summarize(runs)[2].config->task, "other");
}

TEST(SummaryTest, TheMoreCompleteRunOfASeedCounts) {
  Runs runs = {StartedRun("none", 4, 1), FinishedRun("none", 4, 1, {.1}),
               FinishedRun("none", 4, 1, {.2})};
  runs[0].config.stamps["started"] = "2026-03-01T00:00:00Z";
  runs[2].config.stamps["started"] = "2026-02-01T00:00:00Z";
  const std::vector<Section> sections = Summarize(runs);
  ASSERT_THAT(sections[0].runs, ElementsAre(&runs[2]));
  EXPECT_THAT(sections[0].left_out, SizeIs(2));
  EXPECT_THAT(ValuesOf(sections[0].panels[0].groups[0], "test_error", Measure::kFinal),
              ElementsAre(std::pair(1, .2)));
}

TEST(SummaryTest, ReadsFinalBestAndStepsToBest) {
  const Runs runs = {FinishedRun("none", 4, 7, {.3, .1, .2})};
  const Section section = Summarize(runs)[0];
  const Group& group = section.panels[0].groups[0];
  EXPECT_THAT(ValuesOf(group, "test_error", Measure::kFinal), ElementsAre(std::pair(7, .2)));
  EXPECT_THAT(ValuesOf(group, "test_error", Measure::kBest), ElementsAre(std::pair(7, .1)));
  EXPECT_THAT(ValuesOf(group, "test_error", Measure::kStepsToBest), ElementsAre(std::pair(7, 200)));
  EXPECT_THAT(ValuesOf(group, "no such metric", Measure::kFinal), SizeIs(0));
  EXPECT_EQ(CasesPerSecond(runs[0]), 200.0);  // 300 updates of 4 cases in 6 s
}

TEST(SummaryTest, RunsThatDidNotFinishHaveNoValues) {
  Runs runs = {FinishedRun("none", 4, 1, {.1}), FinishedRun("none", 4, 2, {.1}),
               StartedRun("none", 4, 3)};
  runs[1].result->status = "diverged";
  const Section section = Summarize(runs)[0];
  const Group& group = section.panels[0].groups[0];
  EXPECT_EQ(group.CountOf(Status::kFinished), 1);
  EXPECT_EQ(group.CountOf(Status::kDiverged), 1);
  EXPECT_EQ(group.CountOf(Status::kUnfinished), 1);
  EXPECT_THAT(ValuesOf(group, "test_error", Measure::kFinal), SizeIs(1));
  EXPECT_FALSE(CasesPerSecond(runs[2]));
}

TEST(SummaryTest, HeadlineIsReadAtTheBestIfEveryRunHasOne) {
  Runs runs = {FinishedRun("none", 4, 1, {.1}), FinishedRun("layer", 4, 1, {.1})};
  EXPECT_EQ(HeadlineMeasure(Summarize(runs)[0]), Measure::kBest);
  runs[1].result->best.reset();
  EXPECT_EQ(HeadlineMeasure(Summarize(runs)[0]), Measure::kFinal);
}

TEST(SummaryTest, ComparesWithTheDirectionOfTheMetric) {
  const Runs runs = ThreeNorms();
  const Section section = Summarize(runs)[0];
  const Panel& panel = section.panels[0];
  const Comparison sure =
      Compare(*panel.Find("layer"), *panel.Find("batch"), kTestError, Measure::kFinal);
  EXPECT_NEAR(sure.a.mean, .051, 1e-15);
  EXPECT_NEAR(sure.difference.low(), -0.014127916366930098, 1e-12);
  EXPECT_NEAR(sure.difference.high(), -0.006538750299736568, 1e-12);
  EXPECT_EQ(sure.better, 1);
  EXPECT_EQ(Compare(*panel.Find("batch"), *panel.Find("layer"), kTestError, Measure::kFinal).better,
            -1);
  EXPECT_EQ(Compare(*panel.Find("layer"), *panel.Find("none"), kTestError, Measure::kFinal).better,
            0);
  EXPECT_EQ(Compare(*panel.Find("layer"), *panel.Find("batch"), kAccuracy, Measure::kFinal).better,
            1);
}

TEST(SummaryTest, ReachesATargetAtTheFirstEvaluationAtOrBeyondIt) {
  const Runs runs = {FinishedRun("none", 4, 1, {.3, .2, .1, .05}),
                     FinishedRun("none", 4, 2, {.2, .1, .3, .25})};
  const Section section = Summarize(runs)[0];
  const Group& group = section.panels[0].groups[0];
  const Reached both = Reach(group, kTestError, .1);
  EXPECT_EQ(both.count, 2);
  EXPECT_EQ(both.of, 2);
  EXPECT_DOUBLE_EQ(both.steps.mean, 250);  // 300 and 200
  EXPECT_DOUBLE_EQ(both.seconds.mean, 5);  // 6 and 4
  EXPECT_EQ(Reach(group, kTestError, .05).count, 1);
  EXPECT_EQ(Reach(group, kTestError, .01).count, 0);
  EXPECT_DOUBLE_EQ(Reach(group, kAccuracy, .9).steps.mean, 250);
}

TEST(SummaryTest, AnUnfinishedRunHasNotFailedToReachATarget) {
  Runs runs = {FinishedRun("none", 4, 1, {.3}), FinishedRun("none", 4, 2, {.05}),
               FinishedRun("none", 4, 3, {.3})};
  runs[1].result->status = "diverged";
  runs[2].result.reset();
  const Section section = Summarize(runs)[0];
  const Reached reached = Reach(section.panels[0].groups[0], kTestError, .1);
  EXPECT_EQ(reached.count, 1);
  EXPECT_EQ(reached.of, 2);
}

TEST(SummaryTest, CatchesUpWithTheOthersBestSeedBySeed) {
  Runs runs = CatchUpRuns();
  const auto of = [](const std::vector<Section>& sections) {
    const Panel& panel = sections[0].panels[0];
    EXPECT_EQ(ChosenBy(sections[0])->name, "valid_error");
    return CatchUpWith(*panel.Find("layer"), *panel.Find("batch"), *ChosenBy(sections[0]));
  };
  const CatchUp all = of(Summarize(runs));
  EXPECT_EQ(all.count, 2);
  EXPECT_EQ(all.of, 3);
  EXPECT_DOUBLE_EQ(all.steps.mean, (200. / 300 + 1) / 2);
  EXPECT_DOUBLE_EQ(all.seconds.mean, (4. / 6 + 1) / 2);
  ASSERT_TRUE(all.steps.half_width);
  // The ratios are between 100/300 and 200/200, and between 100/200 and 200/100. The widest
  // interval is that of 1/3 and 2: 7/6 +- 12.7062 (Student's t) * 5/6, here about the mean of 2/3
  // and 1.
  EXPECT_NEAR(*all.steps.half_width, 7 / 6. + 12.7062 * 5 / 6 - 5 / 6., 1e-4);

  runs[0] = Diverged(runs[0]);  // never matches, and counts
  const CatchUp diverged = of(Summarize(runs));
  EXPECT_EQ(diverged.of, 3);
  for (const size_t i : {1, 3, 5}) runs[i].result.reset();
  const std::vector<Section> unfinished = Summarize(runs);
  const Panel& panel = unfinished[0].panels[0];
  const MetricSpec* metric = unfinished[0].Find("valid_error");
  EXPECT_EQ(CatchUpWith(*panel.Find("layer"), *panel.Find("batch"), *metric).of, 0);
}

TEST(SummaryTest, ACurveAveragesSeedsStepByStep) {
  Runs runs = {FinishedRun("none", 4, 1, {.3, .2}), FinishedRun("none", 4, 2, {.5, .4})};
  runs[1].evaluations[1].seconds = 6;
  const Section section = Summarize(runs)[0];
  const Curve curve = CurveOf(section.panels[0].groups[0], "test_error");
  ASSERT_THAT(curve.mean, SizeIs(2));
  EXPECT_EQ(curve.seeds, 2);
  EXPECT_EQ(curve.mean[1].step, 200);
  EXPECT_DOUBLE_EQ(curve.mean[1].seconds, 5);  // 4 and 6
  EXPECT_NEAR(curve.mean[1].value.mean, .3, 1e-15);
  EXPECT_EQ(curve.mean[1].value.min, .2);
  EXPECT_EQ(curve.mean[1].value.max, .4);
}

TEST(SummaryTest, TheMeanEndsWithTheShortestSeed) {
  const Runs runs = {FinishedRun("none", 4, 1, {.3, .2, .1}), FinishedRun("none", 4, 2, {.5})};
  const Section section = Summarize(runs)[0];
  const Curve curve = CurveOf(section.panels[0].groups[0], "test_error");
  EXPECT_THAT(curve.mean, SizeIs(1));
  ASSERT_THAT(curve.single, SizeIs(2));
  EXPECT_THAT(curve.single[0].points, SizeIs(3));
}

TEST(SummaryTest, TheMeanIsOverFinishedSeedsOnceThereAreSome) {
  Runs runs = {FinishedRun("none", 4, 1, {.3, .2}), FinishedRun("none", 4, 2, {.5})};
  runs[1].result.reset();
  Section section = Summarize(runs)[0];
  EXPECT_EQ(CurveOf(section.panels[0].groups[0], "test_error").seeds, 1);
  EXPECT_THAT(CurveOf(section.panels[0].groups[0], "test_error").single, SizeIs(2));
  runs[0].result.reset();
  section = Summarize(runs)[0];
  EXPECT_EQ(CurveOf(section.panels[0].groups[0], "test_error").seeds, 2);
}

TEST(SummaryTest, ValuesThatAreNotFiniteAreLeftOut) {
  Runs runs = {FinishedRun("none", 4, 1, {.3, .2})};
  runs[0].evaluations[0].values["test_error"] = std::numeric_limits<double>::infinity();
  runs[0].result->final_values["test_error"] = std::numeric_limits<double>::quiet_NaN();
  const Section section = Summarize(runs)[0];
  EXPECT_THAT(CurveOf(section.panels[0].groups[0], "test_error").mean, SizeIs(1));
  EXPECT_THAT(ValuesOf(section.panels[0].groups[0], "test_error", Measure::kFinal), SizeIs(0));
}

TEST(SummaryTest, RunsWithoutTheComparedSettingAreOneGroup) {
  Runs runs = {FinishedRun("none", 4, 1, {.3})};
  runs[0].config.report.compare = "";
  const Section section = Summarize(runs)[0];
  EXPECT_EQ(section.panels[0].groups[0].value, "all runs");
}

// Presets change several settings at once: one of them tells the panels apart.
TEST(SummaryTest, TitlesNameNoMoreSettingsThanNeeded) {
  Runs runs;
  for (const int batch : {4, 8}) {
    runs.push_back(FinishedRun("none", batch, 1, {.1}));
    runs.back().config.settings["lr"] = 0.1 * batch;
  }
  std::vector<std::string> titles;
  const std::vector<Section> sections = Summarize(runs);
  for (const Panel& panel : sections[0].panels) titles.push_back(panel.title);
  EXPECT_THAT(titles, ElementsAre("batch size 4", "batch size 8"));
}

TEST(OtherLoad, ComparesCpuTimeWithTrainingTime) {
  Runs runs;
  for (const int64_t seed : {1, 2}) runs.push_back(FinishedRun("none", 4, seed, {.1}));
  const auto load = [&](std::optional<double> first, std::optional<double> second,
                        const char* threads = "1") {
    const std::optional<double> shares[] = {first, second};
    for (size_t i = 0; i < 2; ++i) {
      runs[i].config.stamps["threads"] = threads;
      runs[i].result->cpu_seconds.reset();
      if (shares[i]) runs[i].result->cpu_seconds = *shares[i] * runs[i].result->seconds;
    }
    return OtherLoadOf(Summarize(runs)[0].panels[0].groups[0]);
  };
  EXPECT_EQ(load(1, 0.99), OtherLoad::kNone);
  EXPECT_EQ(load(1, 0.5), OtherLoad::kDisturbed);
  EXPECT_EQ(load(0.5, 0.5), OtherLoad::kDisturbed);  // one thread can use a whole CPU
  EXPECT_EQ(load(1.9, 1.85, "2"), OtherLoad::kNone);
  EXPECT_EQ(load(1.9, 1.1, "2"), OtherLoad::kDisturbed);
  EXPECT_EQ(load(1, std::nullopt), OtherLoad::kUnknown);
  EXPECT_EQ(load(0.5, std::nullopt), OtherLoad::kDisturbed);
  runs[0].result.reset();
  runs[1].result.reset();
  EXPECT_EQ(OtherLoadOf(Summarize(runs)[0].panels[0].groups[0]), OtherLoad::kUnknown);
}

}  // namespace
}  // namespace planish::lab
