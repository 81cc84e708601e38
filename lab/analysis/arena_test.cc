#include "lab/analysis/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lab/analysis/summary.h"
#include "lab/analysis/test_runs.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;

Run AtRate(Run run, double rate) {
  run.config.settings[kRateSetting] = rate;
  run.folder += "-" + std::to_string(rate);
  return run;
}

// Appends two tuning runs at the rates 0.1 and 0.2 with these errors each, and compared runs of the
// seeds 1, 2, ... at the rate `at`.
void AddEntry(Runs& runs, const std::string& norm, double low, double high, double at,
              const std::vector<double>& errors) {
  for (int64_t i = 0; i < 2; ++i) {
    const double change = i == 0 ? 0.001 : -0.001;
    runs.push_back(AtRate(FinishedRun(norm, 4, kFirstTuningSeed + i, {low + change}), 0.1));
    runs.push_back(AtRate(FinishedRun(norm, 4, kFirstTuningSeed + i, {high + change}), 0.2));
  }
  for (size_t i = 0; i < errors.size(); ++i) {
    runs.push_back(AtRate(FinishedRun(norm, 4, static_cast<int64_t>(i) + 1, {errors[i]}), at));
  }
}

TEST(ArenaTest, ChoosesTheRateWithTheFewestDivergedRunsThenTheBestMean) {
  const RateTrial a{.rate = 1, .runs = 2, .diverged = 0, .mean = 5};
  const RateTrial b{.rate = 2, .runs = 2, .diverged = 0, .mean = 4};
  const RateTrial c{.rate = 3, .runs = 2, .diverged = 1, .mean = 1};
  const RateTrial d{.rate = 4, .runs = 2, .diverged = 2, .mean = 0};
  EXPECT_EQ(ChooseRate({a, b, c, d}, true), 1u);
  EXPECT_EQ(ChooseRate({a, b, c, d}, false), 0u);
  EXPECT_EQ(ChooseRate({d, c}, true), 1u);
  EXPECT_EQ(ChooseRate({d}, true), std::nullopt);
  EXPECT_EQ(ChooseRate({}, true), std::nullopt);
  RateTrial e = b;
  e.rate = 0.5;
  EXPECT_EQ(ChooseRate({e, b}, true), 0u) << "of equal ones the lowest rate";
}

TEST(ArenaTest, CountsTheRunsOfATrial) {
  const lab::Run first = FinishedRun("none", 4, 1, {0.3, 0.2, 0.4}),
                 second = FinishedRun("none", 4, 2, {0.1});
  const lab::Run diverged = Diverged(FinishedRun("none", 4, 3, {0.1}));
  const lab::Run started = StartedRun("none", 4, 4);
  const RateTrial trial = TrialOf(0.5, {&first, &second, &diverged, &started});
  EXPECT_EQ(trial.rate, 0.5);
  EXPECT_EQ(trial.runs, 3);
  EXPECT_EQ(trial.diverged, 1);
  EXPECT_DOUBLE_EQ(trial.mean, (0.2 + 0.1) / 2);
}

TEST(ArenaTest, ComparesEachEntryAtItsOwnRate) {
  Runs runs;
  AddEntry(runs, "none", 0.3, 0.2, 0.2, {0.30, 0.31, 0.29});
  AddEntry(runs, "layer", 0.1, 0.2, 0.1, {0.10, 0.12, 0.11});
  AddEntry(runs, "batch", 0.1, 0.2, 0.1, {0.11, 0.115, 0.117});
  // At the rate that was not chosen.
  runs.push_back(AtRate(FinishedRun("layer", 4, 1, {0.01}), 0.2));
  const std::vector<ArenaTask> arenas = FindArenas(runs);
  ASSERT_EQ(arenas.size(), 1u);
  const ArenaTask& arena = arenas.front();
  EXPECT_THAT(arena.rates, ElementsAre(0.1, 0.2));
  EXPECT_EQ(arena.tuning_seeds, 2);
  EXPECT_EQ(arena.seeds, 3);
  EXPECT_EQ(arena.metric->name, "test_error");
  EXPECT_EQ(arena.chosen_by->name, "valid_error");
  ASSERT_EQ(arena.entries.size(), 3u);
  const ArenaEntry &layer = arena.entries[0], &batch = arena.entries[1], &none = arena.entries[2];
  EXPECT_EQ(layer.label, "layer");
  EXPECT_EQ(batch.label, "batch");
  EXPECT_EQ(none.label, "none");
  EXPECT_EQ(layer.rate(), 0.1);
  EXPECT_EQ(none.rate(), 0.2);
  EXPECT_TRUE(none.IsAtTheEdge());
  EXPECT_NEAR(layer.estimate.mean, 0.11, 1e-12);
  EXPECT_EQ(layer.seconds_per_step, 0.02);
  // batch - layer: 0.01, -0.005, 0.007. One-sided 95% among two others: Student's t at two-sided
  // 95%, 4.3027 for two degrees of freedom.
  EXPECT_NEAR(batch.behind.mean, 0.004, 1e-12);
  const double deviation = std::sqrt((0.006 * 0.006 + 0.009 * 0.009 + 0.003 * 0.003) / 2);
  EXPECT_NEAR(*batch.bound, 4.302652729749 * deviation / std::sqrt(3), 1e-12);
  EXPECT_FALSE(batch.is_told_apart);
  EXPECT_TRUE(none.is_told_apart);
  EXPECT_FALSE(layer.bound);
}

TEST(ArenaTest, WaitsForEqualTuning) {
  Runs runs;
  AddEntry(runs, "none", 0.3, 0.2, 0.2, {0.30, 0.31});
  AddEntry(runs, "layer", 0.1, 0.2, 0.1, {0.10, 0.12});
  runs.erase(runs.begin() + 6);  // a tuning run of layer
  const ArenaTask arena = FindArenas(runs).front();
  EXPECT_EQ(arena.entries[0].label, "none");
  EXPECT_FALSE(arena.entries[1].chosen);
  EXPECT_TRUE(arena.entries[1].values.empty());
}

TEST(ArenaTest, RanksDivergedRunsAfterAllOthers) {
  Runs runs;
  AddEntry(runs, "none", 0.3, 0.2, 0.2, {0.30, 0.31, 0.32});
  AddEntry(runs, "layer", 0.1, 0.2, 0.1, {0.10, 0.12, 0.11});
  runs.back() = Diverged(runs.back());
  AddEntry(runs, "batch", 0.1, 0.2, 0.1, {});
  for (size_t i = runs.size() - 4; i < runs.size(); ++i) runs[i] = Diverged(runs[i]);
  const ArenaTask arena = FindArenas(runs).front();
  EXPECT_EQ(arena.entries[0].label, "none");
  EXPECT_EQ(arena.entries[1].label, "layer");
  EXPECT_EQ(arena.entries[1].diverged, 1);
  EXPECT_EQ(arena.entries[1].values.size(), 2u);
  EXPECT_EQ(arena.entries[2].label, "batch");
  EXPECT_FALSE(arena.entries[2].chosen) << "it diverges at every rate";
}

TEST(ArenaTest, NamesWhatVariesAmongTheEntries) {
  Runs runs;
  AddEntry(runs, "layer", 0.1, 0.2, 0.1, {0.10, 0.12});
  for (lab::Run& run : runs) {
    run.config.settings["placement"] = "pre";
    run.config.settings["qk_norm"] = false;
    run.config.settings["same"] = "everywhere";
  }
  const Runs before = runs;
  for (lab::Run run : before) {
    run.config.settings["placement"] = "post";
    run.config.settings["qk_norm"] = true;
    runs.push_back(run);
  }
  const ArenaTask arena = FindArenas(runs).front();
  ASSERT_EQ(arena.entries.size(), 2u);
  EXPECT_THAT((std::vector{arena.entries[0].label, arena.entries[1].label}),
              testing::UnorderedElementsAre("layer, pre", "layer, post, qk_norm"));
  // Equal values do not show how they vary.
  EXPECT_FALSE(arena.entries[1].is_told_apart);
}

TEST(ArenaTest, NeedsTuningRunsAtSeveralRates) {
  Runs runs = ThreeNorms();
  EXPECT_TRUE(FindArenas(runs).empty());
  runs.push_back(AtRate(FinishedRun("layer", 4, kFirstTuningSeed, {0.1}), 0.1));
  EXPECT_TRUE(FindArenas(runs).empty());
  runs.push_back(AtRate(FinishedRun("layer", 4, kFirstTuningSeed, {0.1}), 0.2));
  EXPECT_EQ(FindArenas(runs).size(), 1u);
  EXPECT_TRUE(FindArenas({}).empty());
}

TEST(ArenaTest, KeepsPresetsAndDataApart) {
  Runs runs;
  AddEntry(runs, "layer", 0.1, 0.2, 0.1, {0.10, 0.12});
  const Runs before = runs;
  for (lab::Run run : before) {
    run.config.preset = "smoke";
    runs.push_back(run);
    run.config.data.sha256 = "other";
    runs.push_back(run);
  }
  EXPECT_EQ(FindArenas(runs).size(), 3u);
}

TEST(ArenaTest, MarksRunsOfWhichAllHaveTunedRates) {
  Runs runs;
  AddEntry(runs, "none", 0.3, 0.2, 0.2, {0.30, 0.31});
  AddEntry(runs, "layer", 0.1, 0.2, 0.1, {0.10, 0.12});
  Runs tuned = runs;
  KeepComparedRuns(tuned);
  ASSERT_EQ(tuned.size(), 4u);
  for (const lab::Run& run : tuned) EXPECT_TRUE(run.is_rate_tuned);
  const std::vector<Section> sections = Summarize(tuned);
  ASSERT_EQ(sections.front().panels.size(), 1u);
  EXPECT_EQ(sections.front().panels.front().settings[kRateSetting], "tuned");
  EXPECT_EQ(sections.front().panels.front().groups.size(), 2u);

  // A run at another rate: all are compared at equal rates.
  runs.push_back(AtRate(FinishedRun("layer", 4, 3, {0.01}), 0.2));
  KeepComparedRuns(runs);
  for (const lab::Run& run : runs) EXPECT_FALSE(run.is_rate_tuned);
  EXPECT_EQ(Summarize(runs).front().panels.size(), 2u);
}

}  // namespace
}  // namespace planish::lab
