#include "lab/tasks/order-embedding/ranking.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace planish::lab {
namespace {

constexpr int64_t kCaptions = 5;

std::vector<int64_t> Ranks(const at::Tensor& ranks) {
  return {ranks.const_data_ptr<int64_t>(), ranks.const_data_ptr<int64_t>() + ranks.numel()};
}

// Returns the rank of the first right candidate, after sorting with wrong ones before right ones of
// equal error.
int64_t RankByHand(const std::vector<double>& errors, const std::vector<bool>& right) {
  std::vector<size_t> order(errors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return errors[a] != errors[b] ? errors[a] < errors[b] : right[a] < right[b];
  });
  return std::ranges::find_if(order, [&](size_t i) { return right[i]; }) - order.begin() + 1;
}

TEST(Ranking, IsTheSortedOrder) {
  at::manual_seed(3);
  for (const int64_t n : {1, 2, 3, 20}) {
    // Few distinct errors, so that many are equal.
    const at::Tensor errors = at::randint(0, 12, {kCaptions * n, n}).to(at::kFloat) / 4;
    const auto e = errors.accessor<float, 2>();
    std::vector<int64_t> image_ranks, caption_ranks;
    for (int64_t c = 0; c < kCaptions * n; ++c) {
      std::vector<double> of_images;
      std::vector<bool> right;
      for (int64_t i = 0; i < n; ++i) {
        of_images.push_back(e[c][i]);
        right.push_back(i == c / kCaptions);
      }
      image_ranks.push_back(RankByHand(of_images, right));
    }
    for (int64_t i = 0; i < n; ++i) {
      std::vector<double> of_captions;
      std::vector<bool> right;
      for (int64_t c = 0; c < kCaptions * n; ++c) {
        of_captions.push_back(e[c][i]);
        right.push_back(i == c / kCaptions);
      }
      caption_ranks.push_back(RankByHand(of_captions, right));
    }
    EXPECT_EQ(Ranks(ImageRanks(errors)), image_ranks);
    EXPECT_EQ(Ranks(CaptionRanks(errors)), caption_ranks);
  }
}

TEST(Ranking, GivesTheLastRankIfAllErrorsAreEqual) {
  for (const double same : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    const at::Tensor errors = at::full({20, 4}, same);
    EXPECT_EQ(Ranks(ImageRanks(errors)), std::vector<int64_t>(20, 4));
    EXPECT_EQ(Ranks(CaptionRanks(errors)), std::vector<int64_t>(4, 16));
  }
}

TEST(Ranking, SummarizesByHand) {
  const RankSummary odd = Summarize(at::tensor({7, 1, 10, 2, 90}, at::kLong));
  EXPECT_DOUBLE_EQ(odd.r1, 1 / 5.0);
  EXPECT_DOUBLE_EQ(odd.r5, 2 / 5.0);
  EXPECT_DOUBLE_EQ(odd.r10, 4 / 5.0);
  EXPECT_EQ(odd.median, 7);
  EXPECT_DOUBLE_EQ(odd.mean, 110 / 5.0);
  // The mean of the middle two, 2 and 7, is rounded down.
  EXPECT_EQ(Summarize(at::tensor({1, 2, 7, 11}, at::kLong)).median, 4);
  EXPECT_EQ(Summarize(at::tensor({1, 1, 6, 6}, at::kLong)).r5, 0.5);
  EXPECT_EQ(Summarize(at::tensor({3}, at::kLong)).median, 3);
}

}  // namespace
}  // namespace planish::lab
