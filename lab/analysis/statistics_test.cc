#include "lab/analysis/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "lab/error.h"

namespace planish::lab {
namespace {

// scipy.stats.t.ppf(0.975, df)
TEST(StatisticsTest, StudentTMatchesScipy) {
  const std::vector<std::pair<int, double>> quantiles = {
      {1, 12.706204736175}, {2, 4.302652729749},   {3, 3.182446305284},   {5, 2.570581835636},
      {10, 2.228138851986}, {30, 2.042272456301},  {31, 2.039513446396},  {40, 2.021075390306},
      {60, 2.000297822014}, {120, 1.979930405082}, {1000, 1.962339080826}};
  // scipy's values have twelve decimals.
  for (const auto& [df, t] : quantiles) EXPECT_NEAR(StudentT(df), t, 2e-12 * t + 1e-12) << df;
  // scipy.stats.t.ppf((1 + confidence) / 2, df)
  EXPECT_NEAR(StudentT(4, 0.5), 0.740697084113, 1e-12);
  EXPECT_NEAR(StudentT(3, 1 - 0.05 / 19), 9.300130848313, 1e-11);
  EXPECT_NEAR(StudentT(4, 1 - 0.05 / 16), 6.364285400576, 1e-11);
  EXPECT_NEAR(StudentT(1, 0.999), 636.619248768790, 1e-8);
}

TEST(StatisticsTest, StudentTFallsWithDegreesOfFreedom) {
  for (int df = 1; df < 200; ++df) EXPECT_GT(StudentT(df), StudentT(df + 1)) << df;
}

TEST(StatisticsTest, StudentTNeedsADegreeOfFreedom) {
  EXPECT_THROW(StudentT(0), RunError);
  EXPECT_THROW(StudentT(-1), RunError);
  EXPECT_THROW(StudentT(3, 1), RunError);
  EXPECT_THROW(StudentT(3, 0), RunError);
}

// scipy.stats.t.interval(0.95, n - 1, mean, sem); sums of few values round in the last digits.
TEST(StatisticsTest, IntervalMatchesScipy) {
  const Estimate few = EstimateMean(std::vector{2.1, 2.5, 1.9, 2.4, 2.2});
  EXPECT_EQ(few.count, 5);
  EXPECT_NEAR(few.mean, 2.22, 1e-14);
  EXPECT_NEAR(few.half_width.value(), 0.2964432165066615, 1e-10);
  EXPECT_EQ(few.min, 1.9);
  EXPECT_EQ(few.max, 2.5);

  std::vector<double> many;
  for (int i = 0; i < 200; ++i) many.push_back((i * 37 % 101) / 7.0);
  EXPECT_NEAR(EstimateMean(many).mean, 7.149285714286, 1e-11);
  EXPECT_NEAR(EstimateMean(many).half_width.value(), 0.583879941717, 1e-9);
}

TEST(StatisticsTest, NoneAndOneValueHaveNoInterval) {
  EXPECT_EQ(EstimateMean(std::vector<double>{}).count, 0);
  EXPECT_FALSE(EstimateMean(std::vector<double>{}).half_width);
  const Estimate one = EstimateMean(std::vector{0.05});
  EXPECT_EQ(one.mean, 0.05);
  EXPECT_FALSE(one.half_width);
  EXPECT_EQ(SureSign(one), 0);
}

TEST(StatisticsTest, EqualValuesHaveAnIntervalOfNoWidth) {
  const Estimate equal = EstimateMean(std::vector{0.1, 0.1, 0.1});
  EXPECT_EQ(equal.mean, 0.1);
  EXPECT_EQ(equal.half_width, 0);
  EXPECT_EQ(SureSign(equal), 0);  // no spread, so no uncertainty of the mean
  const Estimate zero = EstimateMean(std::vector{0.0, 0.0});
  EXPECT_EQ(zero.half_width, 0);
  EXPECT_EQ(SureSign(zero), 0);
}

TEST(StatisticsTest, DifferencesThatDifferByRoundingHaveNoWidth) {
  const Estimate difference =
      PairedDifference({{1, .71}, {2, .72}, {3, .73}}, {{1, .70}, {2, .71}, {3, .72}});
  EXPECT_NEAR(difference.mean, .01, 1e-15);
  EXPECT_EQ(difference.half_width, 0);
  EXPECT_EQ(SureSign(difference), 0);
}

TEST(StatisticsTest, HugeAndTinyValuesDoNotOverflow) {
  const Estimate huge = EstimateMean(std::vector{1.7e308, 1.6e308, 1.5e308});
  EXPECT_NEAR(huge.mean / 1.6e308, 1, 1e-14);
  // Half-width of {1.7, 1.6, 1.5}: 4.302653 * 0.1 / sqrt(3).
  EXPECT_NEAR(huge.half_width.value() / 1e308, 0.2484137711, 1e-9);
  const Estimate tiny = EstimateMean(std::vector{1.7e-300, 1.6e-300, 1.5e-300});
  EXPECT_NEAR(tiny.half_width.value() / 1e-300, 0.2484137711, 1e-9);
}

// scipy.stats.ttest_rel over seeds 2, 3 and 4.
TEST(StatisticsTest, DifferencesArePairedBySeed) {
  const SeedValues a = {{1, .051}, {2, .049}, {3, .053}, {4, .050}};
  const SeedValues b = {{2, .058}, {3, .060}, {4, .061}, {7, .02}};
  const Estimate difference = PairedDifference(a, b);
  EXPECT_EQ(difference.count, 3);
  EXPECT_NEAR(difference.mean, -0.009, 1e-15);
  EXPECT_NEAR(difference.low(), -0.013968275423500657, 1e-12);
  EXPECT_NEAR(difference.high(), -0.004031724576499343, 1e-12);
  EXPECT_EQ(SureSign(difference), -1);
  EXPECT_EQ(SureSign(PairedDifference(b, a)), 1);
}

TEST(StatisticsTest, NoSeedInCommonIsNoDifference) {
  EXPECT_EQ(PairedDifference({{1, .05}}, {{2, .06}}).count, 0);
  EXPECT_EQ(SureSign(PairedDifference({}, {})), 0);
}

TEST(StatisticsTest, RoundingIsNoDifference) {
  const double sum = 0.1 + 0.2;
  ASSERT_NE(sum, 0.3);
  EXPECT_EQ(SureSign(PairedDifference({{1, sum}, {2, sum}}, {{1, 0.3}, {2, 0.3}})), 0);
  // Differences of 0.001, 0 and -0.001 whose sum does not round to 0.
  EXPECT_EQ(
      PairedDifference({{1, .059}, {2, .060}, {3, .060}}, {{1, .058}, {2, .060}, {3, .061}}).mean,
      0);
}

TEST(StatisticsTest, AnIntervalThatTouchesZeroIsNotSure) {
  Estimate estimate;
  estimate.count = 3;
  estimate.mean = 1;
  estimate.half_width = 1;
  EXPECT_EQ(SureSign(estimate), 0);
  estimate.half_width = 0.999;
  EXPECT_EQ(SureSign(estimate), 1);
  estimate.half_width = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(SureSign(estimate), 0);
}

// Returns the smallest lower limit over all choices of a bound for each value.
double LowestByTrying(const std::vector<Bounded>& values) {
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t choice = 0; choice < size_t{1} << values.size(); ++choice) {
    std::vector<double> chosen;
    for (size_t i = 0; i < values.size(); ++i) {
      chosen.push_back(choice >> i & 1 ? values[i].high : values[i].low);
    }
    lowest = std::min(lowest, EstimateMean(chosen).low());
  }
  return lowest;
}

TEST(StatisticsTest, IntervalsOfBoundedValuesContainThoseOfAllChoices) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> centers(-2, 3), widths(0, 1);
  for (int trial = 0; trial < 300; ++trial) {
    const size_t count = 2 + static_cast<size_t>(trial) % 7;
    std::vector<Bounded> values, opposite;
    for (size_t i = 0; i < count; ++i) {
      const double value = centers(random);
      values.push_back({value - widths(random), value, value + widths(random)});
      opposite.push_back(-1 * values.back());
    }
    const double low = LowestByTrying(values), high = -LowestByTrying(opposite);
    const Estimate estimate = EstimateDifference(values, 3);
    const double half_width = std::max(estimate.mean - low, high - estimate.mean);
    // The bound allows fractional choices, which matter little.
    EXPECT_GE(estimate.half_width.value(), half_width * (1 - 1e-12)) << trial;
    EXPECT_LE(estimate.half_width.value(), half_width * 1.1) << trial;
  }
}

TEST(StatisticsTest, EqualTimesOnAGridHaveAnInterval) {
  // Five crossings between the same two evaluations.
  const Estimate estimate = EstimateDifference(std::vector<Bounded>(5, {-700, -675, -650}), 700);
  EXPECT_EQ(estimate.mean, -675);
  EXPECT_GT(estimate.half_width.value(), 25);
  EXPECT_EQ(SureSign(estimate), -1);
  EXPECT_EQ(SureSign(EstimateDifference(std::vector<Bounded>(5, {-50, -25, 0}), 50)), 0);
}

TEST(StatisticsTest, WeightsTurnBoundsAround) {
  const Bounded sum = Bounded{1, 2, 4} + -2 * Bounded{10, 11, 13};
  EXPECT_EQ(sum.low, -25);
  EXPECT_EQ(sum.value, -20);
  EXPECT_EQ(sum.high, -16);
  EXPECT_FALSE(sum.IsExact());
  EXPECT_TRUE(Exactly(3).IsExact());
}

// scipy.stats.ttest_1samp(x, 0).pvalue
TEST(StatisticsTest, PValuesMatchScipy) {
  EXPECT_NEAR(PValue(EstimateMean(std::vector{1.2, 0.7, 1.9})).value(), 0.067888026228278, 1e-12);
  EXPECT_NEAR(PValue(EstimateMean(std::vector{-0.3, 0.4, -0.9, -0.2, -0.5})).value(),
              0.230199641080499, 1e-12);
  EXPECT_EQ(PValue(EstimateMean(std::vector{1.0})), std::nullopt);
  EXPECT_EQ(PValue(EstimateMean(std::vector{1.0, 1.0})), std::nullopt);
  EXPECT_EQ(PValue(EstimateMean(std::vector<double>{})), std::nullopt);
}

TEST(StatisticsTest, PValuesAgreeWithIntervals) {
  for (const double shift : {0.5, 0.9, 1.0, 1.1, 2.0}) {
    std::vector<double> values = {shift + 0.2, shift - 0.3, shift + 1.0, shift - 0.7};
    const Estimate estimate = EstimateMean(values);
    EXPECT_EQ(PValue(estimate).value() < 0.05, SureSign(estimate) != 0) << shift;
  }
}

// scipy.stats.false_discovery_control, and Holm's method by hand: 6 * .001, 5 * .008, 4 * .02,
// 3 * .03 and so on, never falling.
TEST(StatisticsTest, PValuesAreAdjusted) {
  const PValues values = {0.03, 0.001, std::nullopt, 0.6, 0.008, 0.02, 0.2};
  const PValues holm = HolmAdjusted(values), fdr = FalseDiscoveryAdjusted(values);
  const PValues expected_holm = {0.09, 0.006, std::nullopt, 0.6, 0.04, 0.08, 0.4};
  const PValues expected_fdr = {0.045, 0.006, std::nullopt, 0.6, 0.024, 0.04, 0.24};
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(holm[i].has_value(), values[i].has_value());
    if (!values[i]) continue;
    EXPECT_NEAR(*holm[i], *expected_holm[i], 1e-15) << i;
    EXPECT_NEAR(*fdr[i], *expected_fdr[i], 1e-15) << i;
  }
  EXPECT_TRUE(HolmAdjusted({}).empty());
  EXPECT_EQ(HolmAdjusted({0.4, 0.9}), (PValues{0.8, 0.9}));
}

TEST(StatisticsTest, IntervalsOfOtherConfidencesMatchScipy) {
  // scipy.stats.t.interval(0.9, 4, mean, sem)
  const Estimate estimate = AtConfidence(EstimateMean(std::vector{2.1, 2.5, 1.9, 2.4, 2.2}), 0.90);
  EXPECT_NEAR(estimate.half_width.value(), 0.227618949589511, 1e-10);
  EXPECT_FALSE(AtConfidence(EstimateMean(std::vector{2.1}), 0.9).half_width);
}

}  // namespace
}  // namespace planish::lab
