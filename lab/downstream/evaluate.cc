#include "lab/downstream/evaluate.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "lab/base/evenly_spaced.h"
#include "lab/downstream/correlation.h"
#include "lab/downstream/logistic.h"
#include "lab/error.h"

namespace planish::lab {

namespace {

constexpr int kChoices = 9;       // values of c for classes
constexpr int kPairChoices = 13;  // for SICK
// Mean accuracies that differ by less differ only in rounding.
constexpr double kSame = 1e-12;

// Divides rows by their norm, in double. Rows of zeros are unchanged.
at::Tensor Normalized(const at::Tensor& vectors) {
  const at::Tensor x = vectors.to(at::kDouble);
  return x / x.norm(2, 1, true).clamp_min(std::numeric_limits<double>::min());
}

uint64_t SplitMix64(uint64_t seed) {
  uint64_t z = seed + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Returns c of choice i.
at::Tensor Powers(int count) {
  return at::exp2(at::arange(count, at::TensorOptions().dtype(at::kDouble)));
}

// Row masks of each problem, [N, folds * (inner + 1)]. Problem f * (inner + 1) + j leaves out outer
// fold f and inner fold j of the remaining rows. For j = inner it leaves out only outer fold f.
struct Folds {
  at::Tensor train, test;
};

Folds MakeFolds(int64_t rows, int64_t folds, int64_t inner) {
  const std::vector<int64_t> order = RowOrder(rows);
  const int64_t problems = folds * (inner + 1);
  at::Tensor train = at::zeros({rows, problems}, at::kDouble), test = at::zeros_like(train);
  auto is_train = train.accessor<double, 2>(), is_test = test.accessor<double, 2>();
  for (int64_t f = 0; f < folds; ++f) {
    std::vector<int64_t> rest;
    const int64_t last = f * (inner + 1) + inner;
    for (int64_t p = 0; p < rows; ++p) {
      const int64_t row = order[static_cast<size_t>(p)];
      if (p * folds / rows == f) {
        is_test[row][last] = 1;
      } else {
        is_train[row][last] = 1;
        rest.push_back(row);
      }
    }
    for (int64_t q = 0; q < std::ssize(rest); ++q) {
      const int64_t row = rest[static_cast<size_t>(q)], part = q * inner / std::ssize(rest);
      for (int64_t j = 0; j < inner; ++j) {
        (part == j ? is_test : is_train)[row][f * (inner + 1) + j] = 1;
      }
    }
  }
  return {train, test};
}

at::Tensor Features(const PairVectors& pairs) {
  const at::Tensor a = Normalized(pairs.a), b = Normalized(pairs.b);
  return at::cat({(a - b).abs(), a * b}, 1);
}

at::Tensor ScoreTargets(const std::vector<double>& scores) {
  at::Tensor targets = at::zeros({std::ssize(scores), 5}, at::kDouble);
  auto wanted = targets.accessor<double, 2>();
  for (size_t i = 0; i < scores.size(); ++i) {
    const double floor = std::min(std::floor(scores[i]), 4.0);
    const auto row = static_cast<int64_t>(i), place = static_cast<int64_t>(floor) - 1;
    wanted[row][place + 1] = scores[i] - floor;
    wanted[row][place] = 1 - wanted[row][place + 1];
  }
  return targets;
}

// Returns expected scores [P, N] of features [N, D].
at::Tensor Scores(const at::Tensor& features, const at::Tensor& coefficients) {
  const at::Tensor values = at::arange(1, 6, at::TensorOptions().dtype(at::kDouble));
  return (Predict(features, coefficients).softmax(2) * values).sum(2).t().contiguous();
}

std::span<const double> Row(const at::Tensor& scores, int64_t row) {
  return {scores.const_data_ptr<double>() + row * scores.size(1),
          static_cast<size_t>(scores.size(1))};
}

RelatedPairs EvenlySpacedPairs(const RelatedPairs& pairs, int64_t max_count) {
  return {EvenlySpaced(pairs.a, max_count), EvenlySpaced(pairs.b, max_count),
          EvenlySpaced(pairs.scores, max_count)};
}

}  // namespace

std::vector<int64_t> RowOrder(int64_t rows) {
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::sort(order, {}, [](int64_t i) { return SplitMix64(static_cast<uint64_t>(i)); });
  return order;
}

double NestedAccuracy(const at::Tensor& vectors, const std::vector<int64_t>& labels,
                      const EvaluationOptions& options) {
  const int64_t rows = vectors.size(0), folds = options.folds, inner = options.inner;
  // Each outer fold must leave at least one row for each inner fold.
  if (rows < folds || rows - (rows + folds - 1) / folds < inner) {
    throw UsageError(
        fmt::format("[NestedAccuracy] {} folds of {} must have a sentence each, got {} sentences",
                    folds, inner, rows));
  }
  const at::Tensor x = Normalized(vectors);
  const at::Tensor y = at::tensor(labels).to(at::kDouble);
  const auto [train, test] = MakeFolds(rows, folds, inner);
  const at::Tensor sizes = test.sum(0);
  const FitOptions fit{.poll = options.poll};
  at::Tensor coefficients;
  std::vector<at::Tensor> accuracies;  // for each c, [folds, inner + 1]
  const at::Tensor c = Powers(kChoices);
  for (int i = 0; i < kChoices; ++i) {
    coefficients = FitLogistic(x, y, train, c[i].expand({train.size(1)}), coefficients, fit);
    const at::Tensor right = (Predict(x, coefficients) > 0) == (y > 0).unsqueeze(1);
    accuracies.push_back(((right * test).sum(0) / sizes).view({folds, inner + 1}));
  }
  const at::Tensor all = at::stack(accuracies);
  const at::Tensor chosen_by = all.slice(2, 0, inner).mean(2);  // [choices, folds]
  double sum = 0;
  for (int64_t f = 0; f < folds; ++f) {
    int best = 0;
    for (int i = 1; i < kChoices; ++i) {
      const auto mean = [&](int choice) { return chosen_by[choice][f].item<double>(); };
      if (mean(i) > mean(best) + kSame) best = i;
    }
    sum += all[best][f][inner].item<double>();
  }
  return sum / static_cast<double>(folds);
}

Relatedness SickRelatedness(const Sick& sick, const PairVectors& train, const PairVectors& valid,
                            const PairVectors& test, const EvaluationOptions& options) {
  const at::Tensor coefficients = FitSoftmax(Features(train), ScoreTargets(sick.train.scores),
                                             Powers(kPairChoices), {.poll = options.poll});
  const at::Tensor guesses = Scores(Features(valid), coefficients);
  int64_t best = 0;
  for (int64_t i = 1; i < kPairChoices; ++i) {
    const auto r = [&](int64_t choice) { return Pearson(Row(guesses, choice), sick.valid.scores); };
    if (r(i) > r(best)) best = i;
  }
  const at::Tensor final_guesses = Scores(Features(test), coefficients);
  const std::span<const double> guess = Row(final_guesses, best), truth = sick.test.scores;
  Relatedness result{Pearson(guess, truth), Spearman(guess, truth), 0};
  for (size_t i = 0; i < truth.size(); ++i) {
    result.mse += (guess[i] - truth[i]) * (guess[i] - truth[i]) / static_cast<double>(truth.size());
  }
  return result;
}

std::map<std::string, double> EvaluateSentences(const SentenceEvaluationSets& sets,
                                                const SentenceVectors& vectors,
                                                const EvaluationOptions& options) {
  std::map<std::string, double> values;
  if (sets.sick) {
    const auto part = [&](const std::string& name, const RelatedPairs& pairs) {
      return PairVectors{vectors("sick." + name + ".a", pairs.a),
                         vectors("sick." + name + ".b", pairs.b)};
    };
    const Sick& sick = *sets.sick;
    const PairVectors train = part("train", sick.train), valid = part("trial", sick.valid),
                      test = part("test", sick.test);
    const Relatedness found = SickRelatedness(sick, train, valid, test, options);
    values = {{"sick_r", found.r}, {"sick_rho", found.rho}, {"sick_mse", found.mse}};
  }
  for (const ClassifiedSentences& set : sets.classified) {
    values[set.name] = NestedAccuracy(vectors(set.name, set.sentences), set.labels, options);
  }
  return values;
}

SentenceEvaluationSets Fewer(const SentenceEvaluationSets& sets, int64_t max_count) {
  SentenceEvaluationSets fewer = sets;
  if (fewer.sick) {
    for (RelatedPairs* part : {&fewer.sick->train, &fewer.sick->valid, &fewer.sick->test}) {
      *part = EvenlySpacedPairs(*part, max_count);
    }
  }
  for (ClassifiedSentences& set : fewer.classified) {
    set.sentences = EvenlySpaced(set.sentences, max_count);
    set.labels = EvenlySpaced(set.labels, max_count);
  }
  return fewer;
}

}  // namespace planish::lab
