#include "lab/run/item_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace planish::lab {
namespace {

using ::testing::ElementsAre;

TEST(ItemMetrics, AreRatiosOfSums) {
  const Predictions classes =
      PredictionsOf({kLabelColumn, kPredictionColumn}, {{0, 1, 2, 1}, {0, 1, 1, 1}});
  EXPECT_EQ(ValueOf(*FindItemMetric("test_accuracy"), classes), 0.75);
  EXPECT_EQ(ValueOf(*FindItemMetric("test_error"), classes), 0.25);
  EXPECT_THAT(PartsOf(*FindItemMetric("test_error"), classes),
              ElementsAre(ElementsAre(0, 0, 1, 0), ElementsAre(1, 1, 1, 1)));
  const Predictions trees = PredictionsOf({kWordsColumn, kHeadsColumn, kLabelledHeadsColumn},
                                          {{3, 0, 7}, {3, 0, 5}, {2, 0, 4}});
  EXPECT_EQ(ValueOf(*FindItemMetric("test_uas"), trees), 0.8);
  EXPECT_EQ(ValueOf(*FindItemMetric("test_las"), trees), 0.6);
  EXPECT_TRUE(std::isnan(ValueOf(*FindItemMetric("test_uas"),
                                 PredictionsOf({kWordsColumn, kHeadsColumn}, {{0}, {0}}))));
  EXPECT_EQ(FindItemMetric("test_nll"), nullptr);
  EXPECT_EQ(FindItemMetric("valid_accuracy"), nullptr);
  EXPECT_THROW(ValueOf(*FindItemMetric("test_uas"), classes), std::invalid_argument);
}

// Two sentences, counted by hand: "the cat sat on mat" for "the cat sat on the mat", and "a b" for
// "a c". Matches 5 + 1 of 5 + 2, 3 + 0 of 4 + 1, 2 of 3, 1 of 2; 7 tokens for 8.
TEST(ItemMetrics, AreTheBleuOfSummedCounts) {
  const std::vector<BleuCounts> sentences = {{6, {5, 4, 3, 2}, {5, 3, 2, 1}},
                                             {2, {2, 1, 0, 0}, {1, 0, 0, 0}}};
  const double expected =
      100 * std::exp(1 - 8.0 / 7) * std::pow(6.0 / 7 * 3 / 5 * 2 / 3 * 1 / 2, 0.25);
  // Rounding errors of a product of five.
  EXPECT_NEAR(ValueOf(*FindItemMetric("test_bleu"), BleuPredictions(sentences)), expected, 1e-12);
  EXPECT_THAT(BleuPredictions(sentences).columns,
              ElementsAre("reference_tokens", "total_1", "total_2", "total_3", "total_4",
                          "correct_1", "correct_2", "correct_3", "correct_4"));
}

TEST(ItemMetrics, AcceptAnyValues) {
  constexpr int64_t kLargest = 0x7fffffffffffffff;
  const Predictions trees =
      PredictionsOf({kWordsColumn, kHeadsColumn}, {{kLargest, kLargest}, {kLargest, 1}});
  EXPECT_NO_THROW(ValueOf(*FindItemMetric("test_uas"), trees));
}

}  // namespace
}  // namespace planish::lab
