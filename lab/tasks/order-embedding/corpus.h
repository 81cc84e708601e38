#ifndef PLANISH_LAB_TASKS_ORDER_EMBEDDING_CORPUS_H_
#define PLANISH_LAB_TASKS_ORDER_EMBEDDING_CORPUS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lab/data/sentences.h"
#include "lab/engine/task.h"
#include "lab/tasks/order-embedding/captions.h"

namespace planish::lab {

/// Captions as symbols: words by the lexicon's numbers, an end symbol last, then padding with it.
struct CaptionSymbols {
  at::Tensor rows;     ///< [N, longest] int32
  at::Tensor lengths;  ///< [N] int64, the end symbol counted

  /// The captions of `cases` [B] int64: [T, B] int64, T symbols the longest of them has, and their
  /// lengths [B].
  Tensors Select(const at::Tensor& cases) const;
};

/// Images with their captions as text and as symbols.
struct CaptionSet {
  CaptionedImages text;
  CaptionSymbols symbols;

  int64_t size() const { return text.size(); }
  /// Features [B, F] of the images `cases` [B] int64.
  at::Tensor Features(const at::Tensor& cases) const;
};

/// Captioned images with the lexicon of the training captions.
struct CaptionCorpus final : Dataset {
  Lexicon lexicon;
  bool tokenised;
  CaptionSet train, valid, test;

  /// Words that occur less than `min_count` times in the training captions are unknown. Captions
  /// lose the words after the first `longest`. `about` says how many words are in the lexicon, what
  /// share of the test captions' is not, and how many captions were cut.
  CaptionCorpus(CaptionSets sets, int64_t min_count, int64_t longest);

  /// Words of the lexicon, the unknown one and the end symbol.
  int64_t symbols() const { return lexicon.size() + 1; }

  /// Of captions of one's own.
  CaptionSymbols Encode(const std::vector<std::string>& captions) const;

  /// Whether the lexicon has a word of `caption`.
  bool Knows(std::string_view caption) const;

 private:
  CaptionSet MakeSet(CaptionedImages text, int64_t longest, int64_t* cut) const;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ORDER_EMBEDDING_CORPUS_H_
