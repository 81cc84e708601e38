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

/// Captions as symbols: words by their lexicon indices, an end symbol last, then padding with it.
struct CaptionSymbols {
  at::Tensor rows;     ///< [N, longest] int32
  at::Tensor lengths;  ///< [N] int64, including the end symbol

  /// Returns the captions of `cases` [B] int64: [T, B] int64, where T is the length of the longest,
  /// and their lengths [B].
  Tensors Select(const at::Tensor& cases) const;
};

/// Images with their captions as text and as symbols.
struct CaptionSet {
  CaptionedImages text;
  CaptionSymbols symbols;

  int64_t size() const { return text.size(); }
  /// Returns the features [B, F] of the images `cases` [B] int64.
  at::Tensor Features(const at::Tensor& cases) const;
};

/// Captioned images with the lexicon of the training captions.
struct CaptionCorpus final : Dataset {
  Lexicon lexicon;
  bool tokenized;
  CaptionSet train, valid, test;

  /// Words that occur less than `min_count` times in the training captions are unknown. Cuts
  /// captions to `longest` words. `about` has the size of the lexicon, the fraction of the test
  /// captions' words outside it, and the number of cut captions.
  CaptionCorpus(CaptionSets sets, int64_t min_count, int64_t longest);

  /// Returns the number of words of the lexicon, including the unknown one and the end symbol.
  int64_t symbols() const { return lexicon.size() + 1; }

  /// Returns the symbols of other captions.
  CaptionSymbols Encode(const std::vector<std::string>& captions) const;

  /// Returns true if the lexicon has a word of `caption`.
  bool Knows(std::string_view caption) const;

 private:
  CaptionSet MakeSet(CaptionedImages text, int64_t longest, int64_t* cut) const;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_ORDER_EMBEDDING_CORPUS_H_
