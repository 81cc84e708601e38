#include "lab/reproduce/decide_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <random>
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

  // Returns the row of a claim about RT, or null.
  static const DecideRow* RowOf(const DecidePlan& plan, int number) {
    const auto found = std::ranges::find_if(plan.rows, [&](const DecideRow& row) {
      return row.power.number == number && row.power.column == "RT";
    });
    return found == plan.rows.end() ? nullptr : &*found;
  }

  // Returns the row of "LayerNorm is better than no normalization", or null.
  static const DecideRow* LayerAgainstNone(const DecidePlan& plan) { return RowOf(plan, 1); }

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

  // Differences of `first` and another norm with that mean and a deviation of 1, in percentage
  // points.
  static Values Differing(double mean, const std::string& first = "layer") {
    return [=](const std::string& norm, int64_t seed) {
      return 0.7 + (norm == first
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
  const double printed = row.power.effect / row.power.deviation * std::sqrt(row.test.planned);
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

TEST_F(DecidePlanTest, LooksUntilANormIsSurelyNoWorse) {
  request_.norms = {"layer-simple", "layer"};
  const Values equal = Differing(0, "layer-simple");
  TrainSeeds(5, equal);
  const DecidePlan first = Plan();
  const DecideRow* row = RowOf(first, 2);
  ASSERT_NE(row, nullptr);
  ASSERT_EQ(row->status, Status::kGoesOn);
  const double margin = paper_.MarginOf(*row->power.of, row->power.claim->contrast);
  EXPECT_EQ(row->test.margin, margin);
  EXPECT_EQ(row->power.needed, SeedsNeeded(margin, row->power.deviation, kOneSidedConfidence));
  ASSERT_EQ(row->test.looks.size(), 1u);
  EXPECT_EQ(row->test.looks[0].level, LookLevels({5.0 / row->test.planned}, kNoWorseError)[0] / 2);
  EXPECT_THAT(first.new_looks,
              testing::Contains(HasSubstr("RT, layer-simple - layer, margin 1.29: 5 of ")));
  const DecidePlan last = TrainAll(equal);
  row = RowOf(last, 2);
  EXPECT_EQ(row->status, Status::kDecided);
  EXPECT_EQ(row->power.contrast.sign, 1);
  // "Outperforms" is another claim about this contrast, and has looks of its own.
  EXPECT_NE(RowOf(last, 3)->power.contrast.sign, 1);
  EXPECT_EQ(tests_.FindNoWorse("rt", row->power.claim->contrast)->looks.back().sign, 1);
  EXPECT_EQ(tests_.Find("rt", row->power.claim->contrast)->looks.back().sign, 0);
}

TEST_F(DecidePlanTest, FindsANormWorseThanTheMargin) {
  request_.norms = {"layer-simple", "layer"};
  TrainSeeds(5, Differing(-2, "layer-simple"));
  const DecidePlan last = TrainAll(Differing(-2, "layer-simple"));
  EXPECT_EQ(RowOf(last, 2)->status, Status::kDecided);
  EXPECT_EQ(RowOf(last, 2)->power.contrast.sign, -1);
}

TEST_F(DecidePlanTest, TheMarginIsThatOfTheFirstLook) {
  request_.norms = {"layer-simple", "layer"};
  tests_.tests = {{"rt", {{"layer-simple", 1}, {"layer", -1}}, 20, {{5, 0.3, 1e-9, 0}}, 0.25}};
  TrainSeeds(8, Differing(0, "layer-simple"));
  const DecidePlan plan = Plan();
  EXPECT_EQ(RowOf(plan, 2)->power.effect, 0.25);
  EXPECT_EQ(RowOf(plan, 2)->power.contrast.margin, 0.25);
}

// Returns the contrast of differences with these values; its metric is in the displayed unit, and
// more is better.
ContrastResult ContrastOf(const std::vector<double>& differences, double margin) {
  ContrastResult contrast;
  contrast.measured = true;
  contrast.margin = margin;
  contrast.comparison.difference = EstimateMean(differences);
  return contrast;
}

TEST(TakeLookTest, NoWorseIsTestedAtTheMargin) {
  const MetricSpec metric{"accuracy", "accuracy", "", false};
  // scipy.stats.ttest_1samp(d, -0.5, alternative="greater").pvalue
  const std::vector<double> d = {0.1, -0.3, 0.2, -0.1, 0.25};
  const double p = 0.0032646140928963494;
  const Look look = TakeLook(metric, ContrastOf(d, 0.5), 0.01);
  EXPECT_EQ(look.seeds, 5);
  EXPECT_NEAR(look.p, p, 1e-12);
  EXPECT_EQ(look.sign, 1);
  EXPECT_EQ(TakeLook(metric, ContrastOf(d, 0.5), 0.003).sign, 0);
  // If less is better, the same values are worse by 0.03, and 0.5 is on the other side.
  const MetricSpec error{"error", "error", "", true};
  EXPECT_NEAR(TakeLook(error, ContrastOf(d, 0.5), 0.01).p, 0.004982588140304228, 1e-12);
  EXPECT_EQ(TakeLook(error, ContrastOf({0.9, 0.8, 0.7, 0.8, 0.85}, 0.5), 0.01).sign, -1);
  ContrastResult diverged = ContrastOf(d, 0.5);
  diverged.more_diverged = 1;
  EXPECT_EQ(TakeLook(metric, diverged, 0.01).sign, 0);
  // Equal values have no interval.
  EXPECT_EQ(TakeLook(metric, ContrastOf({1, 1, 1}, 0.5), 0.05).p, 1);
}

// Shares of simulated experiments whose looks find a norm no worse, and worse.
struct Decisions {
  double no_worse = 0, worse = 0;
};

// Simulates paired differences with that mean and the deviation 1.5 against the margin 1, looked at
// after 5, 8, 12, 15 and 18 pairs.
Decisions Simulated(double mean) {
  constexpr int kTrials = 20'000;
  const std::vector<size_t> at = {5, 8, 12, 15, 18};
  std::vector<double> fractions;
  for (const size_t seeds : at) fractions.push_back(static_cast<double>(seeds) / 18);
  const std::vector<double> levels = LookLevels(fractions, kNoWorseError);
  const MetricSpec metric{"accuracy", "accuracy", "", false};
  std::mt19937_64 generator(1);
  std::normal_distribution<double> normal(mean, 1.5);
  Decisions decisions;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> differences;
    int sign = 0;
    for (size_t i = 0; i < at.size() && sign == 0; ++i) {
      while (differences.size() < at[i]) differences.push_back(normal(generator));
      sign = TakeLook(metric, ContrastOf(differences, 1), levels[i] / 2).sign;
    }
    decisions.no_worse += sign > 0;
    decisions.worse += sign < 0;
  }
  return {decisions.no_worse / kTrials, decisions.worse / kTrials};
}

TEST(TakeLookTest, NoWorseErrsInFivePercentOfSimulatedExperiments) {
  // Four standard deviations of a share of 20,000 are 0.0062 at 0.05. The levels are those of
  // normal statistics, but looks use Student's t: that changes the error by less than 0.003.
  const Decisions at_margin = Simulated(-1);
  EXPECT_NEAR(at_margin.no_worse, 0.05, 0.0062 + 0.003);
  EXPECT_NEAR(at_margin.worse, 0.05, 0.0062 + 0.003);
  EXPECT_LT(Simulated(-1.5).no_worse, 0.02);
}

TEST(TakeLookTest, NoWorseHasThePlannedPower) {
  // 16 pairs are needed for a single test (scipy, power_test.cc); five looks need up to 6% more.
  const Decisions equal = Simulated(0);
  EXPECT_GT(equal.no_worse, kPower - 0.02);
  EXPECT_LT(equal.worse, 0.001);
  EXPECT_GT(Simulated(1).no_worse, 0.99);
}

TEST_F(DecidePlanTest, LeavesOutWhatIsNotAskedFor) {
  TrainSeeds(5, Differing(1));
  request_.tasks = {"sst5"};
  EXPECT_EQ(LayerAgainstNone(Plan())->status, Status::kNotAsked);
  request_.tasks = {"rt"};
  request_.norms = {"layer", "ada"};
  EXPECT_EQ(LayerAgainstNone(Plan())->status, Status::kNotAsked);
}

TEST_F(DecidePlanTest, ResultsAreReadOnce) {
  const PaperColumn& column = *paper_.FindColumn("rt");
  const std::vector<PlannedColumn> columns = {{&column, {"layer"}, 3, paper_.preset}};
  RunResults results;
  const auto done = [&](RunResults& by) {
    return QueueColumns(paper_, columns, request_.out, FindTask, by).Done();
  };
  EXPECT_EQ(done(results), 0u);
  TrainSeeds(2, Differing(0));
  EXPECT_EQ(done(results), 0u) << "they were read before";
  RunResults again;
  EXPECT_EQ(done(again), 2u);
  const RunQueue queue = QueueColumns(paper_, columns, request_.out, FindTask, again);
  EXPECT_EQ(queue.Done(), 2u);
  EXPECT_DOUBLE_EQ(queue.estimates.Left(queue.runs[2]).value(), 1);  // 60 seconds
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
