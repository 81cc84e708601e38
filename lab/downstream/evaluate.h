#ifndef PLANISH_LAB_DOWNSTREAM_EVALUATE_H_
#define PLANISH_LAB_DOWNSTREAM_EVALUATE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lab/downstream/sentence_sets.h"

// Evaluation of sentence vectors by Kiros et al. 2015 (Skip-Thought Vectors), as in Table 3 and
// Figure 3 of Ba et al. 2016. Vectors are first divided by their Euclidean norm.
namespace planish::lab {

struct EvaluationOptions {
  int64_t folds = 10;                  ///< of the outer cross-validation, whose scores are averaged
  int64_t inner = 10;                  ///< of the inner one, which chooses c of each outer fold
  std::function<void()> poll = [] {};  ///< called regularly; can throw
};

/// Returns the accuracy of logistic regressions (FitLogistic) on vectors [N, D] of the classes
/// `labels`, by nested cross-validation. c is the smallest of {1, 2, 4, ..., 256} with the best
/// mean accuracy over the inner folds. Rows are in the order of RowOrder. Fold f contains the
/// positions p with p * folds / N = f (rounded down); inner folds divide the rest in the same way.
double NestedAccuracy(const at::Tensor& vectors, const std::vector<int64_t>& labels,
                      const EvaluationOptions& options);

/// Returns the indices 0 .. rows - 1 sorted by splitmix64's output with these as seeds: a
/// reproducible order that is independent of the file's.
std::vector<int64_t> RowOrder(int64_t rows);

/// Pearson's and Spearman's correlation with the true scores, and the mean squared error.
struct Relatedness {
  double r = 0, rho = 0, mse = 0;
};

/// Returns the relatedness of SICK's test pairs, whose vectors are a and b [N, D] in each part. The
/// features of a pair are |a - b| and a * b. A regression (FitSoftmax) to the scores 1 to 5 gives
/// the expected score; a score between two classes is their mixture (Tai et al. 2015, 4.2).
/// c is the smallest of 1, 2, 4 .. 4096 with the best correlation (r) on the validation pairs.
struct PairVectors {
  at::Tensor a, b;
};
Relatedness SickRelatedness(const Sick& sick, const PairVectors& train, const PairVectors& valid,
                            const PairVectors& test, const EvaluationOptions& options);

/// Function that returns the vectors [N, D] of sentences; `name` is a set or part, such as "mr" or
/// "sick.train.a".
using SentenceVectors =
    std::function<at::Tensor(const std::string& name, const std::vector<std::string>& sentences)>;

/// Returns all metrics of the sets: "sick_r", "sick_rho", "sick_mse", and for each set of classes
/// its name -> accuracy, a fraction.
std::map<std::string, double> EvaluateSentences(const SentenceEvaluationSets& sets,
                                                const SentenceVectors& vectors,
                                                const EvaluationOptions& options);

/// Returns the sets with at most `max_count` sentences or pairs in each part, evenly spaced.
SentenceEvaluationSets Fewer(const SentenceEvaluationSets& sets, int64_t max_count);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DOWNSTREAM_EVALUATE_H_
