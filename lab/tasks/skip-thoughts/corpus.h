#ifndef PLANISH_LAB_TASKS_SKIP_THOUGHTS_CORPUS_H_
#define PLANISH_LAB_TASKS_SKIP_THOUGHTS_CORPUS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "lab/downstream/sentence_sets.h"
#include "lab/engine/task.h"
#include "lab/tasks/skip-thoughts/books.h"

namespace planish::lab {

using Words = std::vector<std::string>;

/// Numbers of words: kEnd stands behind a sentence, kUnknown for words that it does not know, the
/// others follow by falling frequency and, where that is the same, by their bytes.
class WordNumbers {
 public:
  static constexpr int32_t kEnd = 0, kUnknown = 1;

  /// The most frequent words of the books, `most` with the two above at most.
  WordNumbers(const std::vector<Book>& books, int64_t most);

  int64_t size() const { return static_cast<int64_t>(numbers_.size()) + 2; }
  int32_t Number(const std::string& word) const;

 private:
  std::unordered_map<std::string, int32_t> numbers_;
};

/// Sentences as rows of numbers.
struct SentenceRows {
  at::Tensor words;    ///< int [S, T], kEnd behind a sentence
  at::Tensor lengths;  ///< int64 [S], with one kEnd

  /// Words [t, B] and lengths [B] of the sentences `which` [B], t the longest of these.
  std::pair<at::Tensor, at::Tensor> Select(const at::Tensor& which) const;
};

/// Rows of the sentences. T is the longest with its kEnd.
SentenceRows NumberSentences(const std::vector<Words>& sentences, const WordNumbers& numbers);

/// Sentences with both their neighbours.
struct Triples {
  SentenceRows sentences;
  /// int64 [N] the middle ones, rows of `sentences`: the one before is the row before.
  at::Tensor middles;
  at::Tensor lengths;              ///< int64 [N]: what LengthBatches sorts by
  int64_t left_out = 0;            ///< with a sentence of more than `longest` words
  int64_t unknown = 0, words = 0;  ///< of all sentences, without kEnd

  int64_t size() const { return middles.size(0); }
};

/// The triples of the books of which no sentence has more than `longest` words: `most` of them,
/// evenly spaced, where there are more.
Triples MakeTriples(const std::vector<Book>& books, const WordNumbers& numbers, int64_t longest,
                    int64_t most);

/// What the task trains on and is judged by.
struct ThoughtData final : Dataset {
  ThoughtData(Library library, SentenceEvaluationSets evaluation, int64_t vocabulary,
              int64_t longest, int64_t most, int64_t most_valid);

  WordNumbers numbers;
  Triples train, valid;
  std::vector<std::string> valid_text;  ///< of the middle sentences of `valid`
  SentenceEvaluationSets sets;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_SKIP_THOUGHTS_CORPUS_H_
