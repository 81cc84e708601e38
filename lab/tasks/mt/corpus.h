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
  at::Tensor lengths;  ///< [N] int64, including </s>

  int64_t size() const { return lengths.size(0); }
  /// Returns the rows of `cases` [B] int64, cut to the longest of them, and their lengths.
  Pieces Select(const at::Tensor& cases) const;
};

/// Returns the pieces of lines.
Pieces EncodeLines(const Bpe& bpe, std::span<const std::string> lines);

/// Sentence pairs as text and as pieces.
struct PairSet {
  std::vector<SentencePair> text;
  Pieces source, target;

  int64_t size() const { return source.size(); }
};

/// Returns the cases of `lengths` [N] sorted by length, in batches of at most `max_tokens` pieces,
/// including padding, but of one case or more.
std::vector<at::Tensor> SortedBatches(const at::Tensor& lengths, int64_t max_tokens);

/// Sentence pairs with the vocabulary of both languages, or one for each, trained on the training
/// pairs.
struct Corpus final : Dataset {
  Bpe bpe;                        ///< of both languages, or of the target
  std::optional<Bpe> source_bpe;  ///< of the source, if it has its own vocabulary
  PairSet train, valid, test;

  /// Leaves out training and validation pairs with more than `max_length` pieces, including </s>,
  /// on a side; keeps all test pairs, because BLEU depends on them.
  /// `about` has the numbers of left-out pairs and of unknown pieces outside training; its sha256
  /// is of the pairs and of the training pairs' pieces. `bpe` has `vocabulary` pieces, and
  /// `source_bpe` has `source_vocabulary`; 0 means that there is none. Vocabularies are cached in
  /// `cache` as in Bpe::TrainOnce. Throws DataError if a split has no pairs left, and like
  /// Bpe::Train.
  Corpus(ParallelText text, int64_t vocabulary, int64_t max_length,
         const std::optional<std::filesystem::path>& cache, int64_t source_vocabulary = 0);

  /// A corpus without pairs.
  Corpus(Bpe pieces, std::optional<Bpe> source_pieces);

  /// Returns the vocabulary of the source.
  const Bpe& SourceBpe() const { return source_bpe ? *source_bpe : bpe; }
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_CORPUS_H_
