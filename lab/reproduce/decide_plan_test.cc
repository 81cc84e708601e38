#include "lab/reproduce/decide_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "lab/analysis/test_runs.h"
#include "lab/run/writer.h"
#include "lab/tasks/tasks.h"
#include "lab/testing/test_folder.h"

namespace planish::lab {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Status = DecideRow::Status;

// Trains column rt of Xu et al. 2019 without training: a run's test accuracy is given.
class DecidePlanTest : public testing::Test {
 protected:
  DecidePlanTest() {
    request_.out = folder_ / "runs";
    request_.tasks = {"rt"};
    request_.norms = {"layer", "none"};
  }

  // Value of a norm and seed, as a fraction.
  using Values = std::function<double(const std::string&, int64_t)>;

  void Train(const QueuedRun& run, const Values& value) {
    runs_.push_back(
        ColumnRun("rt", run.variant, run.plan.seed, value(run.variant, run.plan.seed), "rt"));
    RunResult result;
    result.status = "finished";
    result.seconds = 60;
    RunWriter writer(run.plan.folder);
    writer.WriteConfig(runs_.back().config);
    writer.Append({10, 4, 640, 59, {{"loss", 1}}});
    writer.Finish(result);
  }

  void TrainSeeds(int seeds, const Values& value) {
    ReproduceRequest request = request_;
    request.seeds = seeds;
    for (const QueuedRun& run : MakePlan(paper_, request, FindTask).queue.runs) Train(run, value);
  }

  DecidePlan Plan(double minutes = 1e9) {
    return MakeDecidePlan(paper_, request_, FindTask, runs_, tests_, minutes);
  }

  // Returns the row of "LayerNorm is better than no normalization", or null.
  static const DecideRow* LayerAgainstNone(const DecidePlan& plan) {
    const auto found = std::ranges::find_if(plan.rows, [](const DecideRow& row) {
      return row.power.number == 1 && row.power.column == "RT";
    });
    return found == plan.rows.end() ? nullptr : &*found;
  }

  // Trains stages until none is left. Returns the last plan.
  DecidePlan TrainAll(const Values& value) {
    for (;;) {
      DecidePlan plan = Plan();
      tests_ = plan.tests;
      if (plan.stage.runs.empty()) return plan;
      for (const QueuedRun& run : plan.stage.runs) {
        if (!run.done) Train(run, value);
      }
    }
  }

  // Differences of layer and none with that mean and a deviation of 1, in percentage points.
  static Values Differing(double mean) {
    return [mean](const std::string& norm, int64_t seed) {
      return 0.7 + (norm == "layer"
                        ? mean + std::numbers::sqrt2 * std::sin(2.4 * static_cast<double>(seed))
                        : 0) /
                       100;
    };
  }

  TestFolder folder_;
  const Paper& paper_ = FindPaper("xu2019");
  ReproduceRequest request_;
  SequentialTests tests_{"xu2019", {}};
  Runs runs_;
};

TEST_F(DecidePlanTest, HasNothingToDoWithoutRuns) {
  const DecidePlan plan = Plan();
  EXPECT_TRUE(plan.rows.empty());
  EXPECT_TRUE(plan.stage.runs.empty());
  EXPECT_TRUE(plan.tests.tests.empty());
}

TEST_F(DecidePlanTest, LooksUntilALargeDifferenceIsSure) {
  TrainSeeds(5, Differing(1));
  const DecidePlan first = Plan();
  const DecideRow* row = LayerAgainstNone(first);
  ASSERT_NE(row, nullptr);
  ASSERT_EQ(row->status, Status::kGoesOn);
  EXPECT_EQ(row->power.needed, SeedsNeeded(77.21 - 76.85, row->power.deviation));
  // Looks cost a few per cent of the seeds.
  EXPECT_GE(row->test.planned, *row->power.needed);
  EXPECT_LE(row->test.planned, 1.06 * *row->power.needed + 1);
  ASSERT_EQ(row->test.looks.size(), 1u);
  EXPECT_EQ(row->test.looks[0].seeds, 5);
  EXPECT_EQ(row->test.looks[0].level, LookLevels({5.0 / row->test.planned})[0]);
  const int next = 5 + (row->test.planned - 5 + 3) / 4;
  EXPECT_EQ(first.stage.runs.size(), static_cast<size_t>(2 * next));
  EXPECT_EQ(first.all.runs.size(), static_cast<size_t>(2 * row->test.planned));
  EXPECT_THAT(first.new_looks, ElementsAre(HasSubstr("RT, layer - none: 5 of ")));

  const DecidePlan last = TrainAll(Differing(1));
  row = LayerAgainstNone(last);
  EXPECT_EQ(row->status, Status::kDecided);
  EXPECT_EQ(row->power.contrast.sign, 1);
  EXPECT_LT(row->power.seeds, row->test.planned);
  ASSERT_EQ(tests_.tests.size(), 1u);
  EXPECT_EQ(tests_.tests[0].looks.back().sign, 1);
  EXPECT_EQ(tests_.tests[0].looks.front().sign, 0);
}

TEST_F(DecidePlanTest, FindsTheOppositeOfTheClaim) {
  TrainSeeds(5, Differing(-1));
  const DecidePlan last = TrainAll(Differing(-1));
  EXPECT_EQ(LayerAgainstNone(last)->status, Status::kDecided);
  EXPECT_EQ(LayerAgainstNone(last)->power.contrast.sign, -1);
}

TEST_F(DecidePlanTest, StopsWhereThereIsNoEffect) {
  TrainSeeds(5, Differing(0));
  const DecidePlan last = TrainAll(Differing(0));
  const DecideRow& row = *LayerAgainstNone(last);
  EXPECT_EQ(row.status, Status::kHopeless);
  EXPECT_LT(row.power.seeds, row.test.planned);
  // The probability of deciding with the rest of the seeds.
  const double z = 0;
  const double printed = row.power.printed / row.power.deviation * std::sqrt(row.test.planned);
  EXPECT_LT(ConditionalPower(row.test.Fractions(), z, printed), 0.15);
}

TEST_F(DecidePlanTest, AFirstLookIsLessSureThanAnIntervalWithoutLooks) {
  // p = .02 at 5 of 40 seeds is far above the level of the first look.
  const Values value = [](const std::string& norm, int64_t seed) {
    const double differences[] = {2.9, 0.4, 3.1, 1.2, 1.9};
    return 0.7 + (norm == "layer" ? differences[seed - 1] / 100 : 0);
  };
  TrainSeeds(5, value);
  const DecidePlan plan = Plan();
  const DecideRow& row = *LayerAgainstNone(plan);
  EXPECT_EQ(row.status, Status::kGoesOn);
  EXPECT_LT(row.test.looks.at(0).p, 0.05);
  EXPECT_GT(row.test.looks[0].p, row.test.looks[0].level);
  EXPECT_EQ(row.power.contrast.sign, 0);
  EXPECT_THAT(row.power.contrast.doubt, HasSubstr("planned seeds were looked at"));
  // Without time for the seeds there is no look, and the interval stands.
  const DecidePlan none = Plan(1);
  EXPECT_EQ(LayerAgainstNone(none)->status, Status::kTooLong);
  EXPECT_TRUE(none.tests.tests.empty());
  EXPECT_TRUE(none.stage.runs.empty());
  EXPECT_EQ(LayerAgainstNone(none)->power.contrast.sign, 1);
}

TEST_F(DecidePlanTest, LeavesOutWhatIsNotAskedFor) {
  TrainSeeds(5, Differing(1));
  request_.tasks = {"sst5"};
  EXPECT_EQ(LayerAgainstNone(Plan())->status, Status::kNotAsked);
  request_.tasks = {"rt"};
  request_.norms = {"layer", "ada"};
  EXPECT_EQ(LayerAgainstNone(Plan())->status, Status::kNotAsked);
}

TEST_F(DecidePlanTest, EndsAlthoughRunsDiverge) {
  TrainSeeds(5, Differing(0.3));
  for (int stage = 0; stage < 10; ++stage) {
    DecidePlan plan = Plan();
    tests_ = plan.tests;
    if (plan.stage.runs.empty()) {
      EXPECT_NE(LayerAgainstNone(plan)->status, Status::kGoesOn);
      return;
    }
    for (const QueuedRun& run : plan.stage.runs) {
      if (run.done) continue;
      Train(run, Differing(0.3));
      if (run.plan.seed % 2 == 0) runs_.back() = Diverged(runs_.back());
    }
  }
  FAIL() << "it goes on";
}

TEST_F(DecidePlanTest, SeedsThatCannotDecideAreNotPlanned) {
  const Values noisy = [](const std::string& norm, int64_t seed) {
    return 0.7 + (norm == "layer" ? 0.1 * std::sin(2.4 * static_cast<double>(seed)) : 0);
  };
  TrainSeeds(5, noisy);
  const DecidePlan plan = Plan();
  EXPECT_GT(LayerAgainstNone(plan)->power.needed.value_or(1'000'000), kMaxPlannedSeeds);
  EXPECT_EQ(LayerAgainstNone(plan)->status, Status::kHopeless);
  EXPECT_TRUE(plan.tests.tests.empty());
}

}  // namespace
}  // namespace planish::lab
