#include "lab/analysis/format.h"

#include <gtest/gtest.h>

namespace planish::lab {
namespace {

const MetricSpec kError = {"test_error", "test error", "%", true};
const MetricSpec kLoss = {"loss", "training NLL", "nats", true};
const MetricSpec kPlain = {"score", "score", "", false};
const MetricSpec kSteps = {"step", "steps to the best validation", "steps", true};

Estimate Make(double mean, double half_width) {
  Estimate estimate;
  estimate.count = 3;
  estimate.mean = mean;
  estimate.half_width = half_width;
  return estimate;
}

TEST(FormatTest, FractionsOfAPercentMetricAreShownTimesHundred) {
  EXPECT_EQ(FormatValue(kError, 0.0513), "5.13%");
  EXPECT_EQ(FormatValue(kError, 0), "0.00%");
  EXPECT_EQ(FormatValue(kError, 1), "100.00%");
  EXPECT_EQ(FormatValue(kLoss, 0.412345), "0.412 nats");
  EXPECT_EQ(FormatValue(kPlain, 12.345), "12.3");
  EXPECT_EQ(FormatValue(kSteps, 12345.4), "12,345 steps");
}

TEST(FormatTest, HugeSmallAndZeroValuesStayShort) {
  EXPECT_EQ(FormatValue(kLoss, 1e30), "1.00e+30 nats");
  EXPECT_EQ(FormatValue(kLoss, 3.21e-7), "3.21e-07 nats");
  EXPECT_EQ(FormatValue(kLoss, 0), "0 nats");
  EXPECT_EQ(FormatValue(kPlain, -0.0), "0");
}

TEST(FormatTest, AnEstimateHasTwoDigitsOfItsInterval) {
  EXPECT_EQ(FormatEstimate(kError, Make(0.05128, 0.00421)), "5.13 ± 0.42");
  EXPECT_EQ(FormatEstimate(kLoss, Make(2.3456, 0.0789)), "2.346 ± 0.079");
  EXPECT_EQ(FormatEstimate(kLoss, Make(0.000276, 0.0000269)), "0.000276 ± 0.000027");
  EXPECT_EQ(FormatEstimate(kLoss, Make(2e30, 3e29)), "2.00e+30 ± 3.0e+29");
  EXPECT_EQ(FormatEstimate(kLoss, Make(0.5, 0)), "0.500 ± 0.000");
  EXPECT_EQ(FormatEstimate(kLoss, Make(1e-9, 0.25)), "0.00 ± 0.25");
  EXPECT_EQ(FormatEstimate(kError, Make(0.5, 0)), "50.00 ± 0.00");
  Estimate one;
  one.count = 1;
  one.mean = 0.05;
  EXPECT_EQ(FormatEstimate(kError, one), "5.00");
}

TEST(FormatTest, DifferencesAreInWords) {
  EXPECT_EQ(FormatDifference(kError, -0.008), "0.80 points lower");
  EXPECT_EQ(FormatDifference(kLoss, 0.123), "0.12 nats higher");
  EXPECT_EQ(FormatDifference(kSteps, -1200), "1,200 steps fewer");
  EXPECT_EQ(FormatDifference(kError, 0), "no difference");
}

TEST(FormatTest, IntervalsOfDifferencesAreInWords) {
  EXPECT_EQ(FormatDifferenceInterval(kError, Make(-0.008, 0.005)), "0.30 to 1.30 points");
  EXPECT_EQ(FormatDifferenceInterval(kError, Make(0.008, 0.005)), "0.30 to 1.30 points");
  EXPECT_EQ(FormatDifferenceInterval(kError, Make(-0.001, 0.004)),
            "from 0.50 points lower to 0.30 points higher");
  EXPECT_EQ(FormatDifferenceInterval(kSteps, Make(57, 1303)),
            "from 1,246 steps fewer to 1,360 steps more");
  // A bound that excludes 0 must not be rounded to 0.
  EXPECT_EQ(FormatDifferenceInterval(kError, Make(-0.00502, 0.005)), "0.002 to 1.002 points");
}

TEST(FormatTest, SettingsAndNames) {
  EXPECT_EQ(Words("batch_size"), "batch size");
  EXPECT_EQ(SettingText("layer"), "layer");
  EXPECT_EQ(SettingText(0.001), "0.001");
  EXPECT_EQ(SettingText(true), "true");
  EXPECT_EQ(SettingText(nullptr), "—");
  EXPECT_EQ(SettingText(""), "\"\"");
  EXPECT_EQ(SettingPhrase("batch_size", 4), "batch size 4");
  EXPECT_EQ(SettingPhrase("norm_at", "all"), "norm at all");
}

TEST(FormatTest, TwoValuesAreShownAsTheyAre) {
  const auto two = [](double a, double b) { return EstimateMean(std::vector{a, b}); };
  EXPECT_EQ(FormatEstimate(kError, two(.053, .051)), "5.10 and 5.30");
  EXPECT_EQ(FormatEstimate(kSteps, two(1300, 1200)), "1,200 and 1,300");
  // A digit of the difference is always shown.
  EXPECT_EQ(FormatTwo({"loss", "loss", "nats", true}, 2.001, 2.003), "2.001 and 2.003");
  EXPECT_EQ(FormatTwo({"loss", "loss", "nats", true}, 1e-9, 1e9), "1.00e-09 and 1.00e+09");
  EXPECT_EQ(FormatTwo(kError, -.01, 0), "-1.00 and 0.00");
}

TEST(FormatTest, SecondsHaveNoExponent) {
  EXPECT_EQ(FormatSeconds(1.234), "1.23");
  EXPECT_EQ(FormatSeconds(1234567), "1,234,567");
}

}  // namespace
}  // namespace planish::lab
