#include "lab/downstream/evaluate.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "lab/downstream/correlation.h"
#include "lab/downstream/logistic.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;

const auto kDoubles = at::TensorOptions().dtype(at::kDouble);

TEST(RowOrder, IsIndependentOfTheFilesOrder) {
  std::vector<int64_t> order = RowOrder(100);
  EXPECT_FALSE(std::ranges::is_sorted(order));
  // The outputs of splitmix64 from the seeds 0 to 3 begin with e220.., 910a.., 9758.., 1eb2...
  EXPECT_THAT(RowOrder(4), ElementsAre(3, 1, 2, 0));
  std::ranges::sort(order);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

struct Cases {
  at::Tensor x;
  std::vector<int64_t> labels;
};

Cases Make(int64_t rows) {
  at::manual_seed(5);
  Cases cases{at::randn({rows, 6}), {}};
  const at::Tensor z = cases.x.select(1, 2) + 0.8 * at::randn({rows});
  for (int64_t i = 0; i < rows; ++i) cases.labels.push_back(z[i].item<float>() > 0);
  return cases;
}

// Reference: fits every problem separately on its own rows.
double OneByOne(const Cases& cases, int64_t folds, int64_t inner) {
  const std::vector<int64_t> order = RowOrder(cases.x.size(0));
  const at::Tensor x = cases.x.to(at::kDouble) / cases.x.to(at::kDouble).norm(2, 1, true);
  const at::Tensor y = at::tensor(cases.labels).to(at::kDouble);
  const auto accuracy = [&](const std::vector<int64_t>& train, const std::vector<int64_t>& test,
                            double c) {
    const at::Tensor rows = at::tensor(train), others = at::tensor(test);
    const at::Tensor w =
        FitLogistic(x.index_select(0, rows), y.index_select(0, rows),
                    at::ones({rows.size(0), 1}, kDoubles), at::full({1}, c, kDoubles));
    const at::Tensor guess = Predict(x.index_select(0, others), w).squeeze(1) > 0;
    return (guess == (y.index_select(0, others) > 0)).to(at::kDouble).mean().item<double>();
  };
  const auto split = [](const std::vector<int64_t>& all, int64_t parts, int64_t part) {
    std::pair<std::vector<int64_t>, std::vector<int64_t>> result;
    for (int64_t i = 0; i < std::ssize(all); ++i) {
      (i * parts / std::ssize(all) == part ? result.second : result.first)
          .push_back(all[static_cast<size_t>(i)]);
    }
    return result;
  };
  double sum = 0;
  for (int64_t f = 0; f < folds; ++f) {
    const auto [rest, test] = split(order, folds, f);
    double best = -1, best_c = 0;
    for (double c = 1; c <= 256; c *= 2) {
      double mean = 0;
      for (int64_t j = 0; j < inner; ++j) {
        const auto [train, held_out] = split(rest, inner, j);
        mean += accuracy(train, held_out, c) / static_cast<double>(inner);
      }
      // Means that differ only in rounding count as equal.
      if (mean > best + 1e-12) {
        best = mean;
        best_c = c;
      }
    }
    sum += accuracy(rest, test, best_c) / static_cast<double>(folds);
  }
  return sum;
}

TEST(NestedAccuracy, EqualsSeparateFits) {
  const Cases cases = Make(97);
  const double ours = NestedAccuracy(cases.x, cases.labels, {.folds = 4, .inner = 3});
  EXPECT_NEAR(ours, OneByOne(cases, 4, 3), 1e-12);  // sums of fractions in another order
  EXPECT_GT(ours, 0.6);
  EXPECT_LT(ours, 1.0);
  // The length of a vector does not matter.
  EXPECT_NEAR(
      NestedAccuracy(cases.x * at::rand({97, 1}).add(0.1), cases.labels, {.folds = 4, .inner = 3}),
      ours, 1e-12);
}

TEST(NestedAccuracy, NeedsASentenceForEachFold) {
  const Cases cases = Make(12);
  EXPECT_THROW(NestedAccuracy(cases.x, cases.labels, {.folds = 13, .inner = 2}), UsageError);
  EXPECT_THROW(NestedAccuracy(cases.x, cases.labels, {.folds = 2, .inner = 7}), UsageError);
  EXPECT_NO_THROW(NestedAccuracy(cases.x, cases.labels, {.folds = 2, .inner = 6}));
}

RelatedPairs Pairs(const at::Tensor& a, const at::Tensor& b) {
  RelatedPairs pairs;
  const at::Tensor cosine = at::cosine_similarity(a, b);
  for (int64_t i = 0; i < a.size(0); ++i) {
    pairs.a.emplace_back("a");
    pairs.b.emplace_back("b");
    // From 1 to 5, in tenths, like SICK's.
    pairs.scores.push_back(std::round(10 * (3 + 2 * cosine[i].item<double>())) / 10);
  }
  return pairs;
}

TEST(SickRelatedness, ChoosesCByTheValidationPairs) {
  at::manual_seed(9);
  PairVectors parts[3];
  for (int i = 0; i < 3; ++i) parts[i] = {at::randn({80, 5}), at::randn({80, 5})};
  Sick sick;
  sick.train = Pairs(parts[0].a, parts[0].b);
  sick.valid = Pairs(parts[1].a, parts[1].b);
  sick.test = Pairs(parts[2].a, parts[2].b);
  sick.train.scores[0] = 5;  // the end of the scale
  const Relatedness found = SickRelatedness(sick, parts[0], parts[1], parts[2], {});

  const auto features = [&](const PairVectors& pairs) {
    const at::Tensor a = pairs.a.to(at::kDouble), b = pairs.b.to(at::kDouble);
    const at::Tensor u = a / a.norm(2, 1, true), v = b / b.norm(2, 1, true);
    return at::cat({(u - v).abs(), u * v}, 1);
  };
  at::Tensor targets = at::zeros({80, 5}, kDoubles);
  for (int64_t i = 0; i < 80; ++i) {
    // A score's weight on each class falls with the distance.
    for (int k = 1; k <= 5; ++k) {
      targets[i][k - 1] =
          std::max(0.0, 1 - std::abs(sick.train.scores[static_cast<size_t>(i)] - k));
    }
  }
  const auto guess = [&](const PairVectors& pairs, const at::Tensor& w) {
    const at::Tensor p = Predict(features(pairs), w).softmax(2).squeeze(1);
    const at::Tensor scores = (p * at::arange(1, 6, kDoubles)).sum(1);
    return std::vector<double>(scores.const_data_ptr<double>(),
                               scores.const_data_ptr<double>() + 80);
  };
  double best = -2;
  Relatedness wanted;
  for (double c = 1; c <= 4096; c *= 2) {
    const at::Tensor w = FitSoftmax(features(parts[0]), targets, at::full({1}, c, kDoubles));
    const double r = Pearson(guess(parts[1], w), sick.valid.scores);
    if (r <= best) continue;
    best = r;
    const std::vector<double> scores = guess(parts[2], w);
    wanted = {Pearson(scores, sick.test.scores), Spearman(scores, sick.test.scores), 0};
    for (size_t i = 0; i < 80; ++i) wanted.mse += std::pow(scores[i] - sick.test.scores[i], 2) / 80;
  }
  // Fits end with derivatives of 1e-6, and a batch of them ends elsewhere than one fit.
  EXPECT_NEAR(found.r, wanted.r, 1e-3);
  EXPECT_NEAR(found.rho, wanted.rho, 5e-3);
  EXPECT_NEAR(found.mse, wanted.mse, 1e-3);
  EXPECT_GT(found.r, 0.8);  // the products can be summed
}

TEST(EvaluateSentences, RequestsVectorsBySetName) {
  SentenceEvaluationSets sets = MakeSentenceEvaluationSets(60);
  at::manual_seed(1);
  sets.sick = Sick{Pairs(at::randn({30, 3}), at::randn({30, 3})),
                   Pairs(at::randn({20, 3}), at::randn({20, 3})),
                   Pairs(at::randn({10, 3}), at::randn({10, 3}))};
  std::set<std::string> names;
  const auto vectors = [&](const std::string& name, const std::vector<std::string>& sentences) {
    names.insert(name);
    return at::randn({std::ssize(sentences), 3});
  };
  const auto values = EvaluateSentences(sets, vectors, {.folds = 3, .inner = 2});
  EXPECT_THAT(names, ElementsAre("sick.test.a", "sick.test.b", "sick.train.a", "sick.train.b",
                                 "sick.trial.a", "sick.trial.b", "synthetic"));
  std::set<std::string> measured;
  for (const auto& [name, value] : values) measured.insert(name);
  EXPECT_THAT(measured, ElementsAre("sick_mse", "sick_r", "sick_rho", "synthetic"));

  const SentenceEvaluationSets fewer = Fewer(sets, 15);
  EXPECT_EQ(fewer.sick->train.size(), 15);
  EXPECT_EQ(fewer.sick->train.a.size(), 15u);
  EXPECT_EQ(fewer.sick->test.size(), 10);
  EXPECT_EQ(fewer.classified[0].sentences[1], sets.classified[0].sentences[4]);
  EXPECT_EQ(fewer.classified[0].labels[1], sets.classified[0].labels[4]);
  EXPECT_EQ(fewer.classified[0].size(), 15);
}

}  // namespace
}  // namespace planish::lab
