#include "lab/tasks/mt/beam.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "lab/data/bpe.h"

namespace planish::lab {
namespace {

using ::testing::SizeIs;

// Returns a model with padding, </s>, and `vocabulary` - 2 other pieces.
std::shared_ptr<TranslationModel> MakeModel(uint64_t seed, int64_t vocabulary,
                                            int64_t source_vocabulary = 0) {
  at::manual_seed(seed);
  auto model = std::make_shared<TranslationModel>(
      TranslationModel::Options{.vocabulary = vocabulary,
                                .source_vocabulary = source_vocabulary,
                                .transformer = {.layers = 2, .width = 8, .heads = 2, .ffn = 16}});
  at::NoGradGuard no_grad;
  // Far from uniform, so that translations differ.
  for (at::Tensor& weight : model->parameters()) weight.mul_(1.7);
  model->eval();
  return model;
}

// Returns sentences of the given lengths with random pieces, </s> at the end, then padding.
std::pair<at::Tensor, at::Tensor> Sources(const std::vector<int64_t>& lengths, int64_t vocabulary) {
  const int64_t longest = *std::ranges::max_element(lengths);
  at::Tensor source = at::randint(2, vocabulary, {std::ssize(lengths), longest}, at::kLong);
  for (int64_t i = 0; i < source.size(0); ++i) {
    const int64_t length = lengths[static_cast<size_t>(i)];
    source[i][length - 1] = Bpe::kEnd;
    source[i].slice(0, length).fill_(Bpe::kPad);
  }
  return {source, at::tensor(lengths)};
}

// Returns the sum of log-probabilities of these pieces and </s>, from whole sequences. Padding is
// never chosen, but has its probability.
double SumOf(TranslationModel& model, const at::Tensor& source,
             const std::vector<int32_t>& pieces) {
  std::vector<int64_t> input = {Bpe::kEnd}, wanted;
  for (const int32_t piece : pieces) {
    input.push_back(piece);
    wanted.push_back(piece);
  }
  wanted.push_back(Bpe::kEnd);
  const at::Tensor x =
      model.forward(source, at::tensor({source.size(1)}), at::tensor(input).unsqueeze(0));
  const at::Tensor chances = model.Logits(x[0]).to(at::kDouble).log_softmax(1);
  return chances.gather(1, at::tensor(wanted).unsqueeze(1)).sum().item<double>();
}

// A beam with room for every prefix finds the best of all translations: 121 of them, of up to 4 of
// three pieces.
TEST(BeamSearch, FindsTheBestOfAllWhenItsBeamHoldsAll) {
  const at::NoGradGuard no_grad;
  int longer = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const auto model = MakeModel(seed, 5);
    const auto [source, lengths] = Sources({4}, 5);
    for (const double alpha : {0.0, 0.6, 1.0, 2.0}) {
      std::vector<int32_t> best;
      double best_score = -std::numeric_limits<double>::infinity();
      std::function<void(std::vector<int32_t>)> visit = [&](std::vector<int32_t> pieces) {
        const double score =
            SumOf(*model, source, pieces) / std::pow(static_cast<double>(pieces.size() + 1), alpha);
        if (score > best_score) {
          best_score = score;
          best = pieces;
        }
        if (pieces.size() == 4) return;
        pieces.push_back(0);
        for (pieces.back() = 2; pieces.back() <= 4; ++pieces.back()) visit(pieces);
      };
      visit({});
      const auto found =
          BeamSearch(*model, source, lengths,
                     {.beam = 121, .length_penalty = alpha, .longest_ratio = 0, .longest_more = 5});
      EXPECT_EQ(found.at(0).pieces, best) << seed << " " << alpha;
      // Floats summed over 5 steps, compared with doubles.
      EXPECT_NEAR(found.at(0).score, best_score, 1e-5) << seed << " " << alpha;
      longer += best.size() > 1;
    }
  }
  EXPECT_GE(longer, 6);  // not only empty translations
}

TEST(BeamSearch, ABeamOfOneIsGreedy) {
  const at::NoGradGuard no_grad;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const int64_t source_vocabulary = seed % 2 == 0 ? 45 : 0;  // half of them have their own
    const auto model = MakeModel(seed, 30, source_vocabulary);
    const auto [source, lengths] = Sources({6}, std::max<int64_t>(source_vocabulary, 30));
    std::vector<int64_t> input = {Bpe::kEnd};
    std::vector<int32_t> expected;
    while (expected.size() < 13) {
      const at::Tensor x = model->forward(source, lengths, at::tensor(input).unsqueeze(0));
      const at::Tensor logits = model->Logits(x[0][-1]);
      const int64_t piece = logits.slice(0, 1).argmax().item<int64_t>() + 1;  // except padding
      if (piece == Bpe::kEnd) break;
      input.push_back(piece);
      expected.push_back(static_cast<int32_t>(piece));
    }
    const auto found =
        BeamSearch(*model, source, lengths, {.beam = 1, .longest_ratio = 1, .longest_more = 8});
    EXPECT_EQ(found.at(0).pieces, expected) << seed;
  }
}

TEST(BeamSearch, ScoresAreNormalizedSumsOfLogProbabilities) {
  const at::NoGradGuard no_grad;
  const auto model = MakeModel(3, 20);
  const auto [source, lengths] = Sources({7}, 20);
  for (const double alpha : {0.0, 1.0}) {
    const Hypothesis found =
        BeamSearch(*model, source, lengths, {.beam = 4, .length_penalty = alpha}).at(0);
    const double length = static_cast<double>(found.pieces.size() + 1);
    EXPECT_NEAR(found.score, SumOf(*model, source, found.pieces) / std::pow(length, alpha), 1e-4);
  }
}

TEST(BeamSearch, TranslatesABatchAsOneByOne) {
  const at::NoGradGuard no_grad;
  const auto model = MakeModel(7, 40);
  const std::vector<int64_t> all = {3, 11, 1, 6, 6, 2, 9};
  const auto [source, lengths] = Sources(all, 40);
  for (const int64_t beam : {1, 3, 5}) {
    const BeamOptions options{.beam = beam, .longest_ratio = 1.5, .longest_more = 3};
    const auto together = BeamSearch(*model, source, lengths, options);
    ASSERT_THAT(together, SizeIs(all.size()));
    for (int64_t i = 0; i < source.size(0); ++i) {
      const int64_t length = all[static_cast<size_t>(i)];
      const Hypothesis alone = BeamSearch(*model, source.slice(0, i, i + 1).slice(1, 0, length),
                                          lengths.slice(0, i, i + 1), options)
                                   .at(0);
      EXPECT_EQ(together[static_cast<size_t>(i)].pieces, alone.pieces) << i;
      EXPECT_NEAR(together[static_cast<size_t>(i)].score, alone.score, 1e-5) << i;
    }
  }
}

TEST(BeamSearch, EndsAtTheGreatestLength) {
  const at::NoGradGuard no_grad;
  const auto model = MakeModel(2, 30);
  for (at::Tensor& weight : model->parameters()) weight.mul_(0.01);  // </s> is one of thirty
  const auto [source, lengths] = Sources({2, 5}, 30);
  const auto found =
      BeamSearch(*model, source, lengths, {.beam = 1, .longest_ratio = 1, .longest_more = 1});
  EXPECT_LE(found.at(0).pieces.size(), 2u);
  EXPECT_LE(found.at(1).pieces.size(), 5u);
  // Only </s> fits.
  EXPECT_THAT(
      BeamSearch(*model, source, lengths, {.longest_ratio = 0, .longest_more = 1})[0].pieces,
      SizeIs(0));
}

TEST(BeamSearch, GivesNothingFromAModelThatHasDiverged) {
  const at::NoGradGuard no_grad;
  const auto model = MakeModel(2, 30);
  for (at::Tensor& weight : model->parameters()) weight.fill_(std::nan(""));
  const auto [source, lengths] = Sources({2, 5}, 30);
  EXPECT_THAT(BeamSearch(*model, source, lengths, {})[1].pieces, SizeIs(0));
}

}  // namespace
}  // namespace planish::lab
