#include "lab/tasks/mt/corpus.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "lab/base/format_integer.h"
#include "lab/data/sha256.h"
#include "lab/error.h"

namespace planish::lab {

namespace {

using Encoded = std::vector<std::vector<int32_t>>;

// Returns lines of pieces, each with </s>, as a tensor.
Pieces Pad(const Encoded& lines) {
  size_t longest = 0;
  for (const auto& line : lines) longest = std::max(longest, line.size() + 1);
  Pieces pieces;
  const auto count = std::ssize(lines);
  pieces.rows = at::full({count, static_cast<int64_t>(longest)}, Bpe::kPad, at::kInt);
  pieces.lengths = at::empty({count}, at::kLong);
  auto* row = pieces.rows.mutable_data_ptr<int32_t>();
  auto* length = pieces.lengths.mutable_data_ptr<int64_t>();
  for (const auto& line : lines) {
    std::ranges::copy(line, row);
    row[line.size()] = Bpe::kEnd;
    row += longest;
    *length++ = std::ssize(line) + 1;
  }
  return pieces;
}

struct LeftOut {
  int64_t too_long = 0;  // pairs
  int64_t nothing = 0;   // pairs with a side without pieces, such as only control characters
};

// Returns the pieces of all pairs that have at most `longest` on each side, and these pairs.
PairSet Encode(const Corpus& corpus, std::vector<SentencePair> pairs,
               std::optional<int64_t> longest, LeftOut& left_out) {
  PairSet set;
  Encoded source, target;
  for (SentencePair& pair : pairs) {
    std::vector<int32_t> from = corpus.SourceBpe().Encode(pair.source);
    std::vector<int32_t> to = corpus.bpe.Encode(pair.target);
    if (from.empty() || to.empty()) {
      ++left_out.nothing;
    } else if (longest && std::max(std::ssize(from), std::ssize(to)) + 1 > *longest) {
      ++left_out.too_long;
    } else {
      source.push_back(std::move(from));
      target.push_back(std::move(to));
      set.text.push_back(std::move(pair));
    }
  }
  set.source = Pad(source);
  set.target = Pad(target);
  return set;
}

int64_t Unknown(const PairSet& set) {
  return ((set.source.rows == Bpe::kUnknown).sum() + (set.target.rows == Bpe::kUnknown).sum())
      .item<int64_t>();
}

// Returns the hash of the pairs and of their pieces, because weights are meaningless with another
// vocabulary.
std::string HashOf(const std::string& pairs, const PairSet& set) {
  Sha256 sha;
  sha.Update({reinterpret_cast<const uint8_t*>(pairs.data()), pairs.size()});
  for (const at::Tensor& rows : {set.source.rows, set.target.rows}) {
    sha.Update({static_cast<const uint8_t*>(rows.const_data_ptr()), rows.nbytes()});
  }
  return sha.Hex();
}

// Returns the lines of these sides of all pairs.
std::vector<std::string> Sides(const std::vector<SentencePair>& pairs, bool source, bool target) {
  std::vector<std::string> lines;
  for (const SentencePair& pair : pairs) {
    if (source) lines.push_back(pair.source);
    if (target) lines.push_back(pair.target);
  }
  return lines;
}

}  // namespace

Pieces Pieces::Select(const at::Tensor& cases) const {
  const at::Tensor chosen = lengths.index_select(0, cases);
  const int64_t longest = chosen.max().item<int64_t>();
  return {rows.slice(1, 0, longest).index_select(0, cases), chosen};
}

Pieces EncodeLines(const Bpe& bpe, std::span<const std::string> lines) {
  Encoded encoded;
  for (const std::string& line : lines) encoded.push_back(bpe.Encode(line));
  return Pad(encoded);
}

std::vector<at::Tensor> SortedBatches(const at::Tensor& lengths, int64_t max_tokens) {
  const at::Tensor order = at::argsort(lengths, /*stable=*/true, 0);
  const at::Tensor sorted = lengths.index_select(0, order);
  const auto length = sorted.accessor<int64_t, 1>();
  std::vector<at::Tensor> batches;
  for (int64_t begin = 0, end = 0; begin < sorted.size(0); begin = end) {
    while (end < sorted.size(0) &&
           (end == begin || (end + 1 - begin) * length[end] <= max_tokens)) {
      ++end;
    }
    batches.push_back(order.slice(0, begin, end));
  }
  return batches;
}

Corpus::Corpus(Bpe pieces, std::optional<Bpe> source_pieces)
    : bpe(std::move(pieces)), source_bpe(std::move(source_pieces)) {
  for (PairSet* set : {&train, &valid, &test}) set->source = set->target = Pad({});
}

Corpus::Corpus(ParallelText text, int64_t vocabulary, int64_t max_length,
               const std::optional<std::filesystem::path>& cache, int64_t source_vocabulary)
    : bpe(Bpe::TrainOnce(Sides(text.train, source_vocabulary == 0, true), vocabulary, cache)) {
  if (source_vocabulary > 0) {
    source_bpe = Bpe::TrainOnce(Sides(text.train, true, false), source_vocabulary, cache);
  }
  LeftOut left_out;
  train = Encode(*this, std::move(text.train), max_length, left_out);
  valid = Encode(*this, std::move(text.valid), max_length, left_out);
  test = Encode(*this, std::move(text.test), std::nullopt, left_out);
  for (const auto& [split, set] :
       {std::pair("training", &train), std::pair("validation", &valid), std::pair("test", &test)}) {
    if (set->size() == 0) {
      throw DataError(fmt::format("{} has no {} pairs of at most max_length = {} pieces", text.name,
                                  split, max_length));
    }
  }
  about.name = text.name;
  about.source = text.source;
  about.sha256 = HashOf(text.sha256, train);
  about.sizes = {{"train", train.size()}, {"valid", valid.size()}, {"test", test.size()}};
  about.description =
      source_bpe ? fmt::format("{}; {} pieces in the source's vocabulary, {} in the target's",
                               text.description, FormatInteger(source_bpe->size()),
                               FormatInteger(bpe.size()))
                 : fmt::format("{}; {} pieces in the vocabulary of both languages",
                               text.description, FormatInteger(bpe.size()));
  if (left_out.too_long > 0) {
    about.description +=
        fmt::format("; {} of more than {} pieces left out of training and validation",
                    Count(left_out.too_long, "pair"), max_length);
  }
  if (left_out.nothing > 0) {
    about.description += fmt::format("; {} left out of which a side has no letters",
                                     Count(left_out.nothing, "pair"));
  }
  if (const int64_t unknown = Unknown(valid) + Unknown(test); unknown > 0) {
    about.description += fmt::format("; {} of validation and test {} not in the vocabulary",
                                     Count(unknown, "piece"), unknown == 1 ? "is" : "are");
  }
}

}  // namespace planish::lab
