#include "lab/analysis/two_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

#include "lab/analysis/statistics.h"
#include "lab/analysis/test_runs.h"
#include "lab/base/random.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Values are stored as whole numbers of this size.
constexpr double kUnit = 1e-6;

// Returns the mean of values with a count.
double Mean(std::span<const int64_t> sums) {
  return sums[1] == 0 ? std::nan("")
                      : kUnit * static_cast<double>(sums[0]) / static_cast<double>(sums[1]);
}

ItemResults Results(const std::vector<double>& values, int64_t first_item = 0) {
  ItemResults results;
  results.parts.resize(2);
  for (size_t i = 0; i < values.size(); ++i) {
    results.items.push_back(first_item + static_cast<int64_t>(i));
    results.parts[0].push_back(std::llround(values[i] / kUnit));
    results.parts[1].push_back(1);
  }
  return results;
}

std::optional<TwoWayInterval> IntervalOf(const std::vector<ItemResults>& seeds) {
  return TwoWayBootstrap({seeds}, {1}, Mean);
}

// Normal random numbers that are equal everywhere (Box and Muller).
class Normal {
 public:
  explicit Normal(uint64_t seed) : random_(seed) {}
  double operator()() {
    const double u = (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53;
    const double v = static_cast<double>(random_() >> 11) * 0x1p-53;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  }

 private:
  std::mt19937_64 random_;
};

// Values of crossed random effects, [seed][item]: seed + item + both.
std::vector<std::vector<double>> Crossed(Normal& normal, size_t seeds, size_t items, double of_seed,
                                         double of_item, double of_both) {
  std::vector<double> effects(items);
  for (double& effect : effects) effect = of_item * normal();
  std::vector<std::vector<double>> values;
  for (size_t s = 0; s < seeds; ++s) {
    const double seed = of_seed * normal();
    values.emplace_back();
    for (const double item : effects) values.back().push_back(seed + item + of_both * normal());
  }
  return values;
}

std::vector<ItemResults> ResultsOf(const std::vector<std::vector<double>>& values) {
  std::vector<ItemResults> results;
  for (const std::vector<double>& of_seed : values) results.push_back(Results(of_seed));
  return results;
}

double MeanOfAll(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Returns the mean squared deviation from the mean.
double VarianceOf(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += std::pow(value - MeanOfAll(values), 2);
  return squares / static_cast<double>(values.size());
}

// Returns the half-width that the definition of the bootstrap gives if deviations are normal.
double ExpectedHalfWidth(const std::vector<std::vector<double>>& values) {
  const auto seeds = static_cast<double>(values.size());
  std::vector<double> of_seeds, of_items(values[0].size());
  for (const std::vector<double>& row : values) {
    of_seeds.push_back(MeanOfAll(row));
    for (size_t i = 0; i < row.size(); ++i) of_items[i] += row[i] / seeds;
  }
  const double student = StudentT(static_cast<int>(values.size()) - 1);
  return std::sqrt(student * student * VarianceOf(of_seeds) / (seeds - 1) +
                   1.96 * 1.96 * VarianceOf(of_items) / static_cast<double>(of_items.size()));
}

// The 2.5% quantile of 2,000 draws varies by 2.5%; that of a mean of 10 seeds, which is not normal,
// is a few percent off.
constexpr double kTolerance = 0.08;

TEST(TwoWayBootstrap, HasTheWidthOfItsVarianceComponents) {
  struct Components {
    double seed, item, both;
  };
  for (const auto& [seed, item, both] :
       {Components{1, 0, 0}, {0, 10, 0}, {0, 0, 10}, {1, 10, 3}, {0.5, 10, 20}}) {
    SCOPED_TRACE(testing::Message() << seed << " " << item << " " << both);
    Normal normal(7);
    const auto values = Crossed(normal, 10, 300, seed, item, both);
    const auto interval = IntervalOf(ResultsOf(values));
    ASSERT_TRUE(interval);
    EXPECT_EQ(interval->seeds, 10);
    EXPECT_EQ(interval->items, 300);
    const double expected = ExpectedHalfWidth(values);
    EXPECT_NEAR((interval->high - interval->low) / 2, expected, kTolerance * expected);
  }
}

TEST(TwoWayBootstrap, OfSeedsAloneIsStudentsInterval) {
  for (const size_t seeds : {5u, 10u, 20u}) {
    Normal normal(seeds);
    const auto values = Crossed(normal, seeds, 50, 1, 0, 0);
    std::vector<double> means;
    for (const std::vector<double>& row : values) means.push_back(row[0]);
    const Estimate estimate = EstimateMean(means);
    const auto interval = IntervalOf(ResultsOf(values));
    // Drawn means of 5 seeds have heavier tails on one side.
    const double tolerance = 0.2 * *estimate.half_width;
    EXPECT_NEAR(interval->low, estimate.low(), tolerance) << seeds;
    EXPECT_NEAR(interval->high, estimate.high(), tolerance) << seeds;
  }
}

// The true mean is 0. With 400 data sets the share of intervals that contain it varies by 1.1
// points.
TEST(TwoWayBootstrap, CoversTheTrueMean) {
  Normal normal(1);
  int covered = 0;
  constexpr int kSets = 400;
  for (int i = 0; i < kSets; ++i) {
    const auto results = ResultsOf(Crossed(normal, 5, 40, 1, 5, 5));
    covered += TwoWayBootstrap({results}, {1}, Mean, {.resamples = 400})->Includes(0);
  }
  EXPECT_GE(covered, 0.93 * kSets);
}

// Each seed has its own test items: the variance of the mean over items is that of independent
// means.
TEST(TwoWayBootstrap, AcceptsOtherItemsAtEachSeed) {
  Normal normal(3);
  std::vector<ItemResults> results;
  double variance = 0;
  for (int64_t s = 0; s < 4; ++s) {
    std::vector<double> values;
    for (int i = 0; i < 200; ++i) values.push_back(normal());
    const double mean = MeanOfAll(values);
    for (double& value : values) value -= mean;  // equal seeds
    variance += VarianceOf(values) / 200 / 16;
    results.push_back(Results(values, 200 * s));
  }
  const auto interval = IntervalOf(results);
  EXPECT_EQ(interval->items, 800);
  // The rounded means, of 1e-6 at most, differ between seeds.
  EXPECT_NEAR((interval->high - interval->low) / 2, 1.96 * std::sqrt(variance),
              kTolerance * std::sqrt(variance));
}

TEST(TwoWayBootstrap, IsPairedByItem) {
  Normal normal(4);
  const auto a = Crossed(normal, 3, 100, 0, 10, 0);
  auto b = a;
  for (std::vector<double>& row : b) {
    for (double& value : row) value -= 1;
  }
  const auto interval = TwoWayBootstrap({ResultsOf(a), ResultsOf(b)}, {1, -1}, Mean);
  EXPECT_NEAR(interval->low, 1, 1e-5);  // roundings of kUnit
  EXPECT_NEAR(interval->high, 1, 1e-5);
}

TEST(TwoWayBootstrap, NeedsTwoSeedsAndTwoItems) {
  EXPECT_FALSE(IntervalOf({Results({1, 2, 3})}));
  EXPECT_FALSE(IntervalOf({Results({1}), Results({2})}));
  const auto equal = IntervalOf({Results({.5, .5}), Results({.5, .5})});
  ASSERT_TRUE(equal);
  EXPECT_DOUBLE_EQ(equal->low, 0.5);
  EXPECT_DOUBLE_EQ(equal->high, 0.5);
  // A metric without a value.
  ItemResults nothing = Results({1, 2});
  nothing.parts[1] = {0, 0};
  EXPECT_FALSE(IntervalOf({nothing, nothing}));
}

TEST(TwoWayBootstrap, IsEqualForEqualArguments) {
  Normal normal(5);
  const auto results = ResultsOf(Crossed(normal, 5, 30, 1, 1, 1));
  const auto a = IntervalOf(results), b = IntervalOf(results);
  EXPECT_EQ(a->low, b->low);
  EXPECT_EQ(a->high, b->high);
  const auto other = TwoWayBootstrap({results}, {1}, Mean, {.seed = 2});
  EXPECT_NE(a->low, other->low);
}

// Returns a run whose predictions have these errors of 0 or 1, and its test error.
Run RunWith(const std::string& norm, int64_t seed, const std::vector<int64_t>& errors) {
  const auto sum = std::accumulate(errors.begin(), errors.end(), int64_t{0});
  Run run =
      FinishedRun(norm, 4, seed, {static_cast<double>(sum) / static_cast<double>(errors.size())});
  std::vector<int64_t> labels;
  for (size_t i = 0; i < errors.size(); ++i) labels.push_back(static_cast<int64_t>(i % 10));
  std::vector<int64_t> answers = labels;
  for (size_t i = 0; i < errors.size(); ++i) answers[i] += errors[i];
  run.predictions = std::make_shared<Predictions>(
      PredictionsOf({kLabelColumn, kPredictionColumn}, {labels, answers}));
  return run;
}

class TwoWayOfRuns : public testing::Test {
 protected:
  TwoWayOfRuns() {
    for (int64_t seed = 1; seed <= 3; ++seed) {
      layer.push_back(RunWith("layer", seed, {0, 0, 0, 1, 0, 0, 0, 1, 0, seed == 2}));
      none.push_back(RunWith("none", seed, {0, 1, 0, 1, 0, seed == 1, 0, 1, 0, 1}));
    }
  }

  TwoWayResult Result() { return TwoWayDifference(GroupOf(layer), GroupOf(none), metric); }
  std::vector<std::string> LeftOut() {
    const Group a = GroupOf(layer), b = GroupOf(none);
    return LeftOutOf({&a, &b}, metric).Text();
  }
  static Group GroupOf(const Runs& runs) {
    Group group{runs[0].config.settings["norm"], {}};
    for (const lab::Run& run : runs) group.runs.push_back(&run);
    return group;
  }

  Runs layer, none;
  MetricSpec metric{"test_error", "test error", "%", true};
};

TEST_F(TwoWayOfRuns, ContainsTheDifference) {
  const TwoWayResult result = Result();
  ASSERT_TRUE(result.interval);
  EXPECT_TRUE(result.left_out.empty());
  // Errors of layer: 2, 3, 2 of 10; of none: 5, 4, 4.
  EXPECT_TRUE(result.interval->Includes((7 - 13) / 30.0));
  EXPECT_LT(result.interval->high - result.interval->low, 1);
  EXPECT_THAT(LeftOut(), IsEmpty());
}

TEST_F(TwoWayOfRuns, NeedsAnItemMetric) {
  metric.name = "loss";
  EXPECT_FALSE(Result().interval);
  EXPECT_EQ(Result().left_out, "no predictions are saved for this metric");
  EXPECT_THAT(LeftOut(), IsEmpty());
}

TEST_F(TwoWayOfRuns, TheLastEvaluationNeedsToBeTheOneThatValidationChose) {
  const auto at = [&](Measure measure) {
    return TwoWayDifference(GroupOf(layer), GroupOf(none), metric, measure);
  };
  ASSERT_TRUE(at(Measure::kFinal).interval);
  EXPECT_EQ(at(Measure::kFinal).interval->low, Result().interval->low);
  EXPECT_EQ(at(Measure::kFinal).interval->high, Result().interval->high);
  EXPECT_FALSE(at(Measure::kStepsToBest).interval);
  EXPECT_EQ(at(Measure::kStepsToBest).left_out, "");
  none[1].result->steps += 100;
  EXPECT_FALSE(at(Measure::kFinal).interval);
  EXPECT_EQ(at(Measure::kFinal).left_out,
            "the predictions of 1 of 6 runs are those of the evaluation that validation chose, not "
            "of the last one");
  EXPECT_TRUE(Result().interval);
  none[1].predictions = nullptr;
  EXPECT_EQ(at(Measure::kFinal).left_out, "1 of 6 runs have no usable predictions");
}

TEST_F(TwoWayOfRuns, LeavesOutRunsWithoutPredictions) {
  none[1].predictions = nullptr;
  EXPECT_FALSE(Result().interval);
  EXPECT_EQ(Result().left_out, "1 of 6 runs have no usable predictions");
  EXPECT_THAT(LeftOut(), ElementsAre("1 run without predictions for the test items, of 6: "
                                     "intervals over seeds and test items are left out where they "
                                     "take part."));
  for (Runs* runs : {&layer, &none}) {
    for (lab::Run& run : *runs) run.predictions = nullptr;
  }
  EXPECT_THAT(LeftOut(), ElementsAre(HasSubstr("6 runs without predictions for the test items:")));
}

TEST_F(TwoWayOfRuns, LeavesOutPredictionsThatCannotBeUsed) {
  layer[0].predictions = nullptr;
  layer[0].predictions_fault = "it is truncated";
  layer[1].predictions = std::make_shared<Predictions>(PredictionsOf({"words"}, {{1, 2}}));
  none[2].result->best->values["test_error"] = 0.45;
  EXPECT_EQ(Result().left_out, "3 of 6 runs have no usable predictions");
  EXPECT_THAT(
      LeftOut(),
      ElementsAre("layer-4-1: its predictions cannot be read (it is truncated).",
                  "layer-4-2: its predictions cannot be used (the column label is missing).",
                  "none-4-3: its predictions give a test error of 40.00%, but its result "
                  "45.00%."));
}

TEST_F(TwoWayOfRuns, NeedsTheSameItems) {
  const lab::Run kept = none[0];
  none[0] = RunWith("none", 1, {0, 1});  // another number of items
  EXPECT_FALSE(Result().interval);
  EXPECT_EQ(Result().left_out, "the runs' predictions are of different test items");
  Predictions other = *kept.predictions;
  for (std::vector<int64_t>& column : other.values) column[3] += 1;  // another label
  none[0] = kept;
  none[0].predictions = std::make_shared<Predictions>(other);
  EXPECT_EQ(Result().left_out, "the runs' predictions are of different test items");
  none[0] = kept;
  EXPECT_TRUE(Result().interval);
  EXPECT_FALSE(TwoWayDifference(GroupOf({layer[0]}), GroupOf({none[0]}), metric).interval);
}

// "a b c d" and "e f g h" against the same and against other words: BLEU 100 and 0 on both, so
// draws of items change nothing.
TEST_F(TwoWayOfRuns, ComputesBleuFromSums) {
  const BleuCounts right{4, {4, 3, 2, 1}, {4, 3, 2, 1}}, wrong{4, {4, 3, 2, 1}, {}};
  metric = {"test_bleu", "test BLEU", "BLEU", false};
  for (int64_t i = 0; i < 3; ++i) {
    for (auto& [run, counts] : {std::pair(&layer[i], right), {&none[i], wrong}}) {
      run->predictions =
          std::make_shared<Predictions>(BleuPredictions(std::vector<BleuCounts>{counts, counts}));
      run->result->best->values["test_bleu"] = counts.correct[0] > 0 ? 100 : 0;
    }
  }
  const TwoWayResult result = Result();
  ASSERT_TRUE(result.interval);
  EXPECT_NEAR(result.interval->low, 100, 1e-9);  // rounding errors of logarithms
  EXPECT_NEAR(result.interval->high, 100, 1e-9);
}

}  // namespace
}  // namespace planish::lab
