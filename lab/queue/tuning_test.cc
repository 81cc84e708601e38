#include "lab/queue/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "lab/engine/train.h"
#include "lab/error.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LogGrid, HasEqualRatios) {
  EXPECT_THAT(LogGrid(1e-4, 1e-2, 5),
              ElementsAre("0.0001", "0.000316", "0.001", "0.00316", "0.01"));
  EXPECT_THAT(LogGrid(1e-4, 1e-2, 2), ElementsAre("0.0001", "0.01"));
  const std::vector<std::string> rates = LogGrid(0.123456, 7, 9);
  EXPECT_EQ(rates.front(), "0.123456");
  for (size_t i = 0; i < 9; ++i) {
    const double exact = 0.123456 * std::pow(7 / 0.123456, static_cast<double>(i) / 8);
    EXPECT_NEAR(std::stod(rates[i]), exact, 5e-3 * exact) << i;  // three digits
  }
}

TEST(LogGrid, RisesBetweenCloseEnds) {
  const double high = std::nextafter(0.1, 1);
  for (const double end : {0.1001, 0.1000001, 0.100000000001}) {
    const std::vector<std::string> rates = LogGrid(0.1, end, 7);
    for (size_t i = 1; i < rates.size(); ++i) {
      EXPECT_LT(std::stod(rates[i - 1]), std::stod(rates[i])) << end;
    }
  }
  EXPECT_THAT(LogGrid(0.1, high, 2), ElementsAre("0.1", "0.10000000000000002"));
}

TEST(Combinations, HaveOneValueOfEachSetting) {
  SweepRequest request;
  request.values = {{"norm", {"none", "layer"}}, {"batch_size", {"4", "8"}}};
  const std::vector<SweepRequest> all = Combinations(request);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_THAT(all[1].values[0].second, ElementsAre("none"));
  EXPECT_THAT(all[1].values[1].second, ElementsAre("8"));
  EXPECT_EQ(Combinations({}).size(), 1u);
}

class FindTuningTest : public testing::Test {
 protected:
  FindTuningTest() {
    SweepRequest request;
    request.preset = "smoke";
    request.values = {{"norm", {"layer"}}};
    request.seeds = {1};
    plan_ = PlanSweep(task_, request);
  }

  // Adds a tuning run that has ended with this validation error, or that diverged.
  lab::Run& Add(double rate, double error, const std::string& status = "finished",
                int64_t seed = kFirstTuningSeed) {
    lab::Run& run = runs_.emplace_back();
    run.config.task = task_.name;
    run.config.preset = "smoke";
    run.config.settings = StoredSettings(plan_.front().settings);
    run.config.settings["lr"] = rate;
    run.config.seed = seed;
    run.config.data.sha256 = "a";
    run.result.emplace();
    run.result->status = status;
    if (status == "finished") {
      run.result->best = RunResult::Best{"valid_error", 1, {{"valid_error", error}}};
    }
    return run;
  }
  Tuning Find() { return FindTuning(task_, plan_.front(), runs_); }

  const Task& task_ = FindTask("pi-mnist");
  std::vector<RunPlan> plan_;
  std::vector<lab::Run> runs_;
};

TEST_F(FindTuningTest, ChoosesTheBestMeanOfTheFewestDiverged) {
  EXPECT_TRUE(Find().trials.empty());
  Add(0.1, 0.2);
  Add(0.01, 0.3);
  Add(0.001, 0.4);
  Add(1, 0, "diverged");
  const Tuning tuning = Find();
  ASSERT_EQ(tuning.trials.size(), 4u);
  ASSERT_TRUE(tuning.chosen);
  EXPECT_EQ(RateText(tuning.trials[*tuning.chosen]), "0.1");
  EXPECT_FALSE(tuning.IsAtTheEdge());
  Add(1, 0, "diverged", kFirstTuningSeed + 1);
  EXPECT_FALSE(Find().is_complete) << "the other rates have one seed";
  EXPECT_FALSE(Find().chosen);
}

TEST_F(FindTuningTest, IgnoresRunsOfOtherSettingsAndSeeds) {
  Add(0.1, 0.2);
  Add(0.2, 0.1).config.settings["norm"] = "none";
  Add(0.3, 0.1).config.settings["width"] = 33;
  Add(0.4, 0.1).config.preset = "small";
  Add(0.5, 0.1).config.task = "rt";
  Add(0.6, 0.1, "finished", 1);
  const Tuning tuning = Find();
  ASSERT_EQ(tuning.trials.size(), 1u);
  EXPECT_EQ(tuning.chosen, 0u);
  EXPECT_TRUE(tuning.IsAtTheEdge());
}

TEST_F(FindTuningTest, HasNoRateIfRunsAreUnfinishedOrAllDiverged) {
  Add(0.1, 0, "diverged");
  EXPECT_TRUE(Find().is_complete);
  EXPECT_FALSE(Find().chosen);
  Add(0.2, 0.1).result.reset();
  EXPECT_FALSE(Find().is_complete);
}

TEST_F(FindTuningTest, RefusesRunsOnDifferentData) {
  Add(0.1, 0.2);
  Add(0.2, 0.2).config.data.sha256 = "b";
  EXPECT_THAT([&] { Find(); },
              ::testing::ThrowsMessage<UsageError>(HasSubstr("must have used the same data")));
}

}  // namespace
}  // namespace planish::lab
