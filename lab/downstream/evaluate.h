#ifndef PLANISH_LAB_DOWNSTREAM_EVALUATE_H_
#define PLANISH_LAB_DOWNSTREAM_EVALUATE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lab/downstream/sentence_sets.h"

// How good sentence vectors are: the evaluation of Kiros et al. 2015 (Skip-Thought Vectors), as Ba
// et al. 2016 use it in Table 3 and Figure 3. Vectors are divided by their Euclidean norm first.
namespace planish::lab {

struct EvaluationOptions {
  int64_t folds = 10;                  ///< of the outer cross-validation, whose scores are averaged
  int64_t inner = 10;                  ///< of the inner one, which chooses c of each outer fold
  std::function<void()> poll = [] {};  ///< called every now and then; may throw
};

/// Accuracy of logistic regressions (FitLogistic) on vectors [N, D] of the classes `labels`, by
/// nested cross-validation: c is the smallest of 1, 2, 4 .. 256 with the best mean accuracy over
/// the inner folds. Rows are taken in the order of RowOrder; folds are consecutive parts of it, f
/// having those at positions p with p * folds / N = f (rounded down), inner ones likewise of what
/// is left.
double NestedAccuracy(const at::Tensor& vectors, const std::vector<int64_t>& labels,
                      const EvaluationOptions& options);

/// The numbers 0 .. rows - 1 sorted by splitmix64's output of the seeds 0 .. rows - 1: an order
/// that has nothing to do with that of a file, and that any program can make again.
std::vector<int64_t> RowOrder(int64_t rows);

/// Pearson's and Spearman's correlation with the true scores, and the mean squared error.
struct Relatedness {
  double r = 0, rho = 0, mse = 0;
};

/// Of the test pairs of SICK, whose vectors are a and b [N, D] of each part. Features of a pair are
/// |a - b| and a * b; a regression to the scores 1 to 5 (FitSoftmax), a score between two of them
/// being their mixture, gives the expected score (Tai et al. 2015, 4.2). c is the smallest of 1, 2,
/// 4 .. 4096 with the best correlation (r) on the validation pairs.
struct PairVectors {
  at::Tensor a, b;
};
Relatedness SickRelatedness(const Sick& sick, const PairVectors& train, const PairVectors& valid,
                            const PairVectors& test, const EvaluationOptions& options);

/// The vectors [N, D] of sentences; `name` is "mr", or "sick.train.a", the part's name.
using SentenceVectors =
    std::function<at::Tensor(const std::string& name, const std::vector<std::string>& sentences)>;

/// All that the sets measure: "sick_r", "sick_rho", "sick_mse", and for each set of classes its
/// name -> accuracy, a share.
std::map<std::string, double> EvaluateSentences(const SentenceEvaluationSets& sets,
                                                const SentenceVectors& vectors,
                                                const EvaluationOptions& options);

/// The sets with at most `most` sentences or pairs in each part, evenly spaced.
SentenceEvaluationSets Fewer(const SentenceEvaluationSets& sets, int64_t most);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DOWNSTREAM_EVALUATE_H_
