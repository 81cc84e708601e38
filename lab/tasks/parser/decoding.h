#ifndef PLANISH_LAB_TASKS_PARSER_DECODING_H_
#define PLANISH_LAB_TASKS_PARSER_DECODING_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

#include "lab/tasks/parser/features.h"

namespace planish::lab {

/// Transitions of the oracle with what a model sees before each.
struct Examples {
  at::Tensor features;     ///< [N, 48] int32
  at::Tensor legal;        ///< [N] int32, Legal::code
  at::Tensor transitions;  ///< [N] int64, NumberOf
  int64_t sentences = 0;   ///< they come from so many, the projective ones
};

/// Every transition of the oracle for the projective sentences. Left out are those whose relation
/// does not occur in training, or not there (at a root, or between words), as a validation set may
/// have them: the model gives them no probability.
Examples MakeExamples(std::span<const EncodedSentence> sentences,
                      const ParserVocabulary& vocabulary);

/// [Legal::kCount, 1 + 2 * labels]: 0 where a transition is feasible in a state with that code,
/// else minus infinity. Roots have the relations that roots have in training, words those of words.
at::Tensor FeasibleTransitions(const ParserVocabulary& vocabulary);

/// Gives the logits [N, 1 + 2 * labels] of features [N, 48] int32.
using Scorer = std::function<at::Tensor(const at::Tensor& features)>;

/// The trees that greedy decoding builds: in every state the feasible transition that has the
/// highest logit, all unfinished sentences a step at once.
std::vector<Tree> Decode(std::span<const EncodedSentence> sentences,
                         const ParserVocabulary& vocabulary, const Scorer& scorer);

/// Shares of the scored words that have the right head (UAS), and the right head and relation
/// (LAS).
struct Attachment {
  double unlabelled = 0;
  double labelled = 0;
};
Attachment Score(std::span<const Tree> trees, std::span<const EncodedSentence> sentences);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PARSER_DECODING_H_
