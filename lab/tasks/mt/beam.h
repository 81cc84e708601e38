#ifndef PLANISH_LAB_TASKS_MT_BEAM_H_
#define PLANISH_LAB_TASKS_MT_BEAM_H_

#include <cstdint>
#include <vector>

#include "lab/tasks/mt/model.h"

namespace planish::lab {

struct BeamOptions {
  int64_t beam = 5;           ///< hypotheses a sentence; 1 is greedy search
  double length_penalty = 1;  ///< alpha below
  /// A translation of a source of n pieces has at most longest_ratio * n + longest_more pieces,
  /// </s> counted in both.
  double longest_ratio = 2;
  int64_t longest_more = 10;
};

/// A translation's pieces without </s>, and its score.
struct Hypothesis {
  std::vector<int32_t> pieces;
  double score = 0;
};

/// Beam search as fairseq's: hypotheses grow a piece at a time, the `beam` likeliest unfinished
/// ones of a sentence are kept, and those that end with </s> among the `beam` likeliest are
/// finished. A sentence is done once `beam` hypotheses are, or at its greatest length, where only
/// </s> may follow. The best one has the highest sum of log-probabilities / length^alpha, </s>
/// counted in both. `source` [B, S] int64 and `lengths` [B] int64 are as TranslationModel::forward
/// takes them. Sentences don't influence each other, but for roundings. The model must be in
/// evaluation mode, and gradients off.
std::vector<Hypothesis> BeamSearch(TranslationModel& model, const at::Tensor& source,
                                   const at::Tensor& lengths, const BeamOptions& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_BEAM_H_
