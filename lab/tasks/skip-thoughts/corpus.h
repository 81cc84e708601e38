#ifndef PLANISH_LAB_TASKS_SKIP_THOUGHTS_CORPUS_H_
#define PLANISH_LAB_TASKS_SKIP_THOUGHTS_CORPUS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lab/downstream/sentence_sets.h"
#include "lab/engine/task.h"
#include "lab/tasks/skip-thoughts/books.h"

namespace planish::lab {

using Words = std::vector<std::string>;

/// Indices of words: kEnd ends a sentence, kUnknown is any unknown word, the others follow by
/// falling frequency and then by their bytes.
class WordNumbers {
 public:
  static constexpr int32_t kEnd = 0, kUnknown = 1;

  /// Includes the most frequent words of the books, at most `max_count` with the two above.
  WordNumbers(const std::vector<Book>& books, int64_t max_count);

  /// Includes these words, in the order of their indices. Throws std::invalid_argument if one is
  /// repeated.
  explicit WordNumbers(const Words& words);

  int64_t size() const { return static_cast<int64_t>(numbers_.size()) + 2; }

  /// Returns the words in the order of their indices, without the two above.
  Words InOrder() const;
  int32_t Number(const std::string& word) const;

 private:
  std::unordered_map<std::string, int32_t> numbers_;
};

/// Sentences as rows of indices.
struct SentenceRows {
  at::Tensor words;    ///< int [S, T], padded with kEnd
  at::Tensor lengths;  ///< int64 [S], with one kEnd

  /// Returns words [t, B] and lengths [B] of the sentences `which` [B]; t is the longest of these.
  std::pair<at::Tensor, at::Tensor> Select(const at::Tensor& which) const;
};

/// Returns rows of the sentences. T is the longest with its kEnd.
SentenceRows NumberSentences(const std::vector<Words>& sentences, const WordNumbers& numbers);

/// Sentences with both their neighbours.
struct Triples {
  SentenceRows sentences;
  /// int64 [N] the middle ones, rows of `sentences`: the sentence before is the row before.
  at::Tensor middles;
  at::Tensor lengths;              ///< int64 [N]: sort key of LengthBatches
  int64_t left_out = 0;            ///< with a sentence of more than `longest` words
  int64_t unknown = 0, words = 0;  ///< of all sentences, without kEnd

  int64_t size() const { return middles.size(0); }
};

/// Returns the books' triples in which no sentence has more than `longest` words: at most
/// `max_count` of them, evenly spaced.
Triples MakeTriples(const std::vector<Book>& books, const WordNumbers& numbers, int64_t longest,
                    int64_t max_count);

/// Training data and evaluation sets of the task.
struct ThoughtData final : Dataset {
  ThoughtData(Library library, SentenceEvaluationSets evaluation, int64_t vocabulary,
              int64_t longest, int64_t max_count, int64_t max_valid_count);

  /// Data without sentences, of a model with these words.
  explicit ThoughtData(WordNumbers words) : numbers(std::move(words)) {}

  WordNumbers numbers;
  Triples train, valid;
  std::vector<std::string> valid_text;  ///< of the middle sentences of `valid`
  SentenceEvaluationSets sets;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SKIP_THOUGHTS_CORPUS_H_
