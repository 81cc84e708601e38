#ifndef PLANISH_LAB_TASKS_PARSER_DECODING_H_
#define PLANISH_LAB_TASKS_PARSER_DECODING_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

#include "lab/tasks/parser/features.h"

namespace planish::lab {

/// Transitions of the oracle with the model's inputs before each.
struct Examples {
  at::Tensor features;     ///< [N, 48] int32
  at::Tensor legal;        ///< [N] int32, Legal::code
  at::Tensor transitions;  ///< [N] int64, NumberOf
  int64_t sentences = 0;   ///< number of (projective) sentences that they come from
};

/// Returns every transition of the oracle for the projective sentences. Leaves out relations that
/// training does not have at such a place, at a root or between words. A validation set can have
/// them, but the model gives them no probability.
Examples MakeExamples(std::span<const EncodedSentence> sentences,
                      const ParserVocabulary& vocabulary);

/// Returns [Legal::kCount, 1 + 2 * labels]: 0 for transitions that are feasible in a state with
/// that code, else minus infinity. Roots have training's root relations, words those of words.
at::Tensor FeasibleTransitions(const ParserVocabulary& vocabulary);

/// Returns the logits [N, 1 + 2 * labels] of features [N, 48] int32.
using Scorer = std::function<at::Tensor(const at::Tensor& features)>;

/// Returns the trees of greedy decoding: in every state the feasible transition with the highest
/// logit, one step of all unfinished sentences at a time.
std::vector<Tree> Decode(std::span<const EncodedSentence> sentences,
                         const ParserVocabulary& vocabulary, const Scorer& scorer);

/// Fractions of the scored words with the right head (UAS), and with the right head and relation
/// (LAS).
struct Attachment {
  double unlabelled = 0;
  double labelled = 0;
};
Attachment Score(std::span<const Tree> trees, std::span<const EncodedSentence> sentences);

/// Counts of the scored words by sentence.
struct AttachmentCounts {
  std::vector<int64_t> words;
  std::vector<int64_t> heads;           ///< words with the right head
  std::vector<int64_t> labelled_heads;  ///< words with the right head and relation
};
AttachmentCounts CountAttachments(std::span<const Tree> trees,
                                  std::span<const EncodedSentence> sentences);

/// Returns the fractions of all words.
Attachment Score(const AttachmentCounts& counts);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PARSER_DECODING_H_
