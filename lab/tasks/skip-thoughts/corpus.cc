#include "lab/tasks/skip-thoughts/corpus.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "lab/base/evenly_spaced.h"
#include "lab/base/format_integer.h"
#include "lab/data/sha256.h"
#include "lab/error.h"

namespace planish::lab {

WordNumbers::WordNumbers(const std::vector<Book>& books, int64_t max_count) {
  std::unordered_map<std::string, int64_t> counts;
  for (const Book& book : books) {
    for (const Words& sentence : book.sentences) {
      for (const std::string& word : sentence) ++counts[word];
    }
  }
  std::vector<std::pair<int64_t, std::string>> kept;
  for (const auto& [word, count] : counts) kept.emplace_back(-count, word);
  std::ranges::sort(kept);
  kept.resize(std::min(kept.size(), static_cast<size_t>(max_count - 2)));
  for (auto& [count, word] : kept) {
    numbers_.emplace(std::move(word), static_cast<int32_t>(numbers_.size()) + 2);
  }
}

WordNumbers::WordNumbers(const Words& words) {
  for (const std::string& word : words) {
    if (!numbers_.emplace(word, static_cast<int32_t>(numbers_.size()) + 2).second) {
      throw std::invalid_argument(fmt::format("words must differ, got {} twice", word));
    }
  }
}

Words WordNumbers::InOrder() const {
  Words words(numbers_.size());
  for (const auto& [word, number] : numbers_) words[static_cast<size_t>(number) - 2] = word;
  return words;
}

int32_t WordNumbers::Number(const std::string& word) const {
  const auto found = numbers_.find(word);
  return found == numbers_.end() ? kUnknown : found->second;
}

std::pair<at::Tensor, at::Tensor> SentenceRows::Select(const at::Tensor& which) const {
  const at::Tensor selected = lengths.index_select(0, which);
  const auto longest = selected.max().item<int64_t>();
  return {words.slice(1, 0, longest).index_select(0, which).t().contiguous(), selected};
}

SentenceRows NumberSentences(const std::vector<Words>& sentences, const WordNumbers& numbers) {
  size_t longest = 0;
  for (const Words& sentence : sentences) longest = std::max(longest, sentence.size());
  const int64_t count = std::ssize(sentences), width = static_cast<int64_t>(longest) + 1;
  SentenceRows rows{at::full({count, width}, WordNumbers::kEnd, at::kInt),
                    at::empty({count}, at::kLong)};
  auto* words = rows.words.mutable_data_ptr<int32_t>();
  auto* lengths = rows.lengths.mutable_data_ptr<int64_t>();
  for (const Words& sentence : sentences) {
    for (size_t i = 0; i < sentence.size(); ++i) words[i] = numbers.Number(sentence[i]);
    words += width;
    *lengths++ = std::ssize(sentence) + 1;
  }
  return rows;
}

Triples MakeTriples(const std::vector<Book>& books, const WordNumbers& numbers, int64_t longest,
                    int64_t max_count) {
  Triples triples;
  // Sentences that are too long stay as empty rows, so that neighbours stay neighbours.
  std::vector<Words> sentences;
  std::vector<int64_t> middles, keys;
  const auto length = [&](size_t i) { return std::ssize(sentences[i]); };
  for (const Book& book : books) {
    const size_t first = sentences.size();
    for (const Words& sentence : book.sentences) {
      for (const std::string& word : sentence) {
        triples.unknown += numbers.Number(word) == WordNumbers::kUnknown;
        ++triples.words;
      }
      sentences.push_back(std::ssize(sentence) > longest ? Words() : sentence);
    }
    for (size_t i = first + 1; i + 1 < sentences.size(); ++i) {
      if (length(i - 1) == 0 || length(i) == 0 || length(i + 1) == 0) {
        ++triples.left_out;
      } else {
        middles.push_back(static_cast<int64_t>(i));
      }
    }
  }
  middles = EvenlySpaced(middles, max_count);
  // Sorts by the length of the middle sentence, then by that of the longer neighbour.
  for (const int64_t middle : middles) {
    const auto i = static_cast<size_t>(middle);
    keys.push_back(length(i) * (longest + 1) + std::max(length(i - 1), length(i + 1)));
  }
  triples.sentences = NumberSentences(sentences, numbers);
  triples.middles = at::tensor(middles, at::kLong);
  triples.lengths = at::tensor(keys, at::kLong);
  return triples;
}

namespace {

std::string TextOf(const Words& words) { return fmt::format("{}", fmt::join(words, " ")); }

// Returns the sentences of the books in MakeTriples' order.
std::vector<const Words*> InOrder(const std::vector<Book>& books) {
  std::vector<const Words*> all;
  for (const Book& book : books) {
    for (const Words& sentence : book.sentences) all.push_back(&sentence);
  }
  return all;
}

}  // namespace

ThoughtData::ThoughtData(Library library, SentenceEvaluationSets evaluation, int64_t vocabulary,
                         int64_t longest, int64_t max_count, int64_t max_valid_count)
    : numbers(library.train, vocabulary),
      train(MakeTriples(library.train, numbers, longest, max_count)),
      valid(MakeTriples(library.valid, numbers, longest, max_valid_count)),
      sets(std::move(evaluation)) {
  for (const auto& [name, triples] : {std::pair("training", &train), {"validation", &valid}}) {
    if (triples->size() == 0) {
      throw DataError(fmt::format(
          "the {} books have no three consecutive sentences of at most {} words", name, longest));
    }
  }
  const std::vector<const Words*> text = InOrder(library.valid);
  const auto middles = valid.middles.accessor<int64_t, 1>();
  for (int64_t i = 0; i < valid.size(); ++i) {
    valid_text.push_back(TextOf(*text[static_cast<size_t>(middles[i])]));
  }
  Sha256 sha;
  const std::string both = library.sha256 + sets.sha256;
  sha.Update({reinterpret_cast<const uint8_t*>(both.data()), both.size()});
  about.name = std::move(library.name);
  about.source = std::move(library.source);
  about.description = fmt::format(
      "{}; {} and {} triples of sentences, {} and {} with one of more than {} words left out; {} "
      "words, {:.1f}% of the text are unknown; sets to judge vectors by: {}",
      library.description, FormatInteger(train.size()), FormatInteger(valid.size()),
      FormatInteger(train.left_out), FormatInteger(valid.left_out), longest,
      FormatInteger(numbers.size()),
      100 * static_cast<double>(train.unknown) / static_cast<double>(train.words),
      sets.description);
  about.sha256 = sha.Hex();
  about.sizes = {{"train", train.size()}, {"valid", valid.size()}};
}

}  // namespace planish::lab
