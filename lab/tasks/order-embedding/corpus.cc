#include "lab/tasks/order-embedding/corpus.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "lab/base/format_integer.h"

namespace planish::lab {

namespace {

Lexicon LexiconOf(const CaptionSets& sets, int64_t min_count) {
  Sentences sentences;
  for (const std::string& caption : sets.train.captions) {
    sentences.Add(WordsOf(caption, sets.tokenized), 0);
  }
  return {sentences, min_count};
}

// Converts lines of words, cut to `longest`, to symbols. `cut` counts the longer ones.
CaptionSymbols Number(const Lexicon& lexicon, const std::vector<std::string>& captions,
                      bool tokenized, int64_t longest, int64_t* cut) {
  std::vector<std::vector<int32_t>> lines;
  size_t max_length = 0;
  for (const std::string& caption : captions) {
    std::vector<int32_t>& line = lines.emplace_back();
    for (const std::string& word : WordsOf(caption, tokenized)) {
      if (std::ssize(line) == longest) {
        ++*cut;
        break;
      }
      line.push_back(lexicon.Number(word));
    }
    max_length = std::max(max_length, line.size());
  }
  CaptionSymbols symbols;
  const auto end = static_cast<int32_t>(lexicon.size());
  symbols.rows = at::full({std::ssize(lines), static_cast<int64_t>(max_length) + 1}, end, at::kInt);
  symbols.lengths = at::empty({std::ssize(lines)}, at::kLong);
  auto* row = symbols.rows.mutable_data_ptr<int32_t>();
  auto* length = symbols.lengths.mutable_data_ptr<int64_t>();
  for (const auto& line : lines) {
    std::ranges::copy(line, row);
    row += max_length + 1;
    *length++ = std::ssize(line) + 1;
  }
  return symbols;
}

}  // namespace

Tensors CaptionSymbols::Select(const at::Tensor& cases) const {
  const at::Tensor chosen = lengths.index_select(0, cases);
  const int64_t longest = chosen.max().item<int64_t>();
  return {rows.slice(1, 0, longest).index_select(0, cases).t().to(at::kLong).contiguous(), chosen};
}

at::Tensor CaptionSet::Features(const at::Tensor& cases) const {
  const FeatureRows& all = text.images;
  if (!all.dense.empty()) {
    // A view of the elements, which are never written to.
    return at::from_blob(const_cast<float*>(all.dense.data()), {all.rows, all.width}, at::kFloat)
        .index_select(0, cases);
  }
  at::Tensor features = at::zeros({cases.size(0), all.width});
  auto* row = features.mutable_data_ptr<float>();
  const auto image = cases.accessor<int64_t, 1>();
  for (int64_t i = 0; i < cases.size(0); ++i, row += all.width) {
    const auto r = static_cast<size_t>(image[i]);
    for (auto k = static_cast<size_t>(all.begins[r]); k < static_cast<size_t>(all.begins[r + 1]);
         ++k) {
      row[all.columns[k]] = all.values[k];
    }
  }
  return features;
}

CaptionCorpus::CaptionCorpus(CaptionSets sets, int64_t min_count, int64_t longest)
    : lexicon(LexiconOf(sets, min_count)), tokenized(sets.tokenized) {
  int64_t cut = 0;
  train = MakeSet(std::move(sets.train), longest, &cut);
  valid = MakeSet(std::move(sets.valid), longest, &cut);
  test = MakeSet(std::move(sets.test), longest, &cut);
  about.name = sets.name;
  about.source = sets.source;
  about.sha256 = sets.sha256;
  about.sizes = {{"train", train.size()}, {"valid", valid.size()}, {"test", test.size()}};
  const at::Tensor& rows = test.symbols.rows;
  const double unknown = (rows == 0).sum().item<double>();
  // Without the end symbols.
  const int64_t words = test.symbols.lengths.sum().item<int64_t>() - test.symbols.lengths.numel();
  about.description = fmt::format(
      "{}; {} words of the training captions in the lexicon, {:.1f}% of the test words are not",
      sets.description, FormatInteger(lexicon.size() - 1),
      100 * unknown / static_cast<double>(std::max<int64_t>(words, 1)));
  if (cut > 0) {
    about.description += fmt::format("; {} cut to {} words", Count(cut, "caption"), longest);
  }
}

CaptionSet CaptionCorpus::MakeSet(CaptionedImages text, int64_t longest, int64_t* cut) const {
  CaptionSymbols symbols = Number(lexicon, text.captions, tokenized, longest, cut);
  return {std::move(text), std::move(symbols)};
}

CaptionSymbols CaptionCorpus::Encode(const std::vector<std::string>& captions) const {
  int64_t cut = 0;
  return Number(lexicon, captions, tokenized, std::numeric_limits<int64_t>::max(), &cut);
}

bool CaptionCorpus::Knows(std::string_view caption) const {
  return std::ranges::any_of(WordsOf(caption, tokenized),
                             [&](const std::string& word) { return lexicon.Number(word) != 0; });
}

}  // namespace planish::lab
