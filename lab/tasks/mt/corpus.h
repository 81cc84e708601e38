#ifndef PLANISH_LAB_TASKS_MT_CORPUS_H_
#define PLANISH_LAB_TASKS_MT_CORPUS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/data/bpe.h"
#include "lab/engine/task.h"
#include "lab/tasks/mt/parallel.h"

namespace planish::lab {

/// Sentences as pieces: a row each, </s> after the last piece, then padding.
struct Pieces {
  at::Tensor rows;     ///< [N, longest] int32
  at::Tensor lengths;  ///< [N] int64, </s> counted

  int64_t size() const { return lengths.size(0); }
  /// The rows of `cases` [B] int64, cut at the longest of them, and their lengths.
  Pieces Select(const at::Tensor& cases) const;
};

/// Pieces of some lines.
Pieces EncodeLines(const Bpe& bpe, std::span<const std::string> lines);

/// Sentence pairs as text and as pieces.
struct PairSet {
  std::vector<SentencePair> text;
  Pieces source, target;

  int64_t size() const { return source.size(); }
};

/// The cases of `lengths` [N] by length, cut into batches of at most `max_tokens` pieces, padding
/// counted, but of one case at least.
std::vector<at::Tensor> SortedBatches(const at::Tensor& lengths, int64_t max_tokens);

/// Sentence pairs with the vocabulary of both languages, trained on the training pairs.
struct Corpus final : Dataset {
  Bpe bpe;
  PairSet train, valid, test;

  /// Pairs of which a side has more than `max_length` pieces, </s> counted, are left out of
  /// training and validation; none are of the test set, whose BLEU would be another one without
  /// them. `about` says how many, and how many pieces outside training the vocabulary lacks; its
  /// sha256 is of the pairs and of the training pairs' pieces. The vocabulary is kept in `cache`,
  /// as Bpe::TrainOnce keeps it. Throws DataError where nothing is left of a split, and what
  /// Bpe::Train throws.
  Corpus(ParallelText text, int64_t vocabulary, int64_t max_length,
         const std::optional<std::filesystem::path>& cache);
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_CORPUS_H_
