#ifndef PLANISH_LAB_TASKS_MT_BEAM_H_
#define PLANISH_LAB_TASKS_MT_BEAM_H_

#include <cstdint>
#include <vector>

#include "lab/tasks/mt/model.h"

namespace planish::lab {

struct BeamOptions {
  int64_t beam = 5;           ///< hypotheses per sentence; 1 is greedy search
  double length_penalty = 1;  ///< alpha below
  /// A translation of a source of n pieces has at most longest_ratio * n + longest_more pieces,
  /// including </s> in both.
  double longest_ratio = 2;
  int64_t longest_more = 10;
};

/// Pieces of a translation without </s>, and its score.
struct Hypothesis {
  std::vector<int32_t> pieces;
  double score = 0;
};

/// Translates sentences by beam search (docs/tasks/mt.md#beam-search). `source` [B, S] int64 and
/// `lengths` [B] int64 are those of TranslationModel::forward. Sentences are independent up to
/// rounding. The model must be in evaluation mode, with gradients off.
std::vector<Hypothesis> BeamSearch(TranslationModel& model, const at::Tensor& source,
                                   const at::Tensor& lengths, const BeamOptions& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_BEAM_H_
