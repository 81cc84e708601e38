#include "lab/tasks/parser/features.h"

#include <algorithm>
#include <array>
#include <map>

#include "lab/base/lower_case.h"

namespace planish::lab {

namespace {

// First tokens of words and of tags.
enum : int32_t { kNull, kRoot, kUnknown, kFirstOther };

}  // namespace

ParserVocabulary::ParserVocabulary(std::span<const DependencyTree> train,
                                   const VocabularyOptions& options)
    : options_(options) {
  // Ordered, so that indices depend only on the words that occur.
  std::map<std::string, int64_t> words, tags;
  std::map<std::string, Label> labels;
  for (const DependencyTree& tree : train) {
    for (const TreeWord& word : tree.words) {
      ++words[LowerCase(word.form)];
      ++tags[Tag(word)];
      Label& label = labels[Relation(word.relation)];
      (word.head == 0 ? label.at_root : label.elsewhere) = true;
    }
  }
  int32_t next = kFirstOther;
  for (const auto& [word, count] : words) {
    if (count >= options.min_count) word_tokens_[word] = next++;
  }
  words_ = next;
  next += kFirstOther;
  for (const auto& [tag, count] : tags) tag_tokens_[tag] = next++;
  tags_ = next - words_;
  for (auto& [relation, label] : labels) {
    label_numbers_[relation] = static_cast<int32_t>(labels_.size());
    label.relation = relation;
    labels_.push_back(std::move(label));
  }
}

std::string ParserVocabulary::Relation(const std::string& relation) const {
  return options_.subtypes ? relation : relation.substr(0, relation.find(':'));
}

const std::string& ParserVocabulary::Tag(const TreeWord& word) const {
  return options_.xpos ? word.xpos : word.upos;
}

EncodedSentence ParserVocabulary::Encode(const DependencyTree& tree) const {
  const auto find = [](const auto& numbers, const std::string& key, int32_t otherwise) {
    const auto found = numbers.find(key);
    return found == numbers.end() ? otherwise : found->second;
  };
  EncodedSentence sentence;
  sentence.words = {kRoot};
  sentence.tags = {NoTag() + kRoot};
  sentence.tree = {{-1}, {-1}};
  sentence.scored = {false};
  for (const TreeWord& word : tree.words) {
    sentence.words.push_back(find(word_tokens_, LowerCase(word.form), kUnknown));
    sentence.tags.push_back(find(tag_tokens_, Tag(word), NoTag() + kUnknown));
    sentence.tree.heads.push_back(word.head);
    sentence.tree.labels.push_back(find(label_numbers_, Relation(word.relation), -1));
    sentence.scored.push_back(!IsPunctuation(word));
  }
  return sentence;
}

bool IsPunctuation(const TreeWord& word) {
  static constexpr std::array<std::string_view, 6> kTags = {"PUNCT", "``", "''", ",", ".", ":"};
  return std::ranges::find(kTags, word.upos) != kTags.end();
}

void ExtractFeatures(const ParserState& state, const EncodedSentence& sentence,
                     const ParserVocabulary& vocabulary, std::span<int32_t, kFeatures> features) {
  std::array<int32_t, kSeenWords> seen;
  size_t count = 0;
  for (const size_t depth : {0, 1, 2}) seen[count++] = state.stack(depth);
  for (const int32_t place : {0, 1, 2}) seen[count++] = state.buffer(place);
  const size_t first_dependent = count;
  for (const size_t depth : {0, 1}) {
    const int32_t word = state.stack(depth);
    seen[count++] = state.left(word);
    seen[count++] = state.right(word);
    seen[count++] = state.second_left(word);
    seen[count++] = state.second_right(word);
    seen[count++] = state.left(state.left(word));
    seen[count++] = state.right(state.right(word));
  }
  auto out = features.begin();
  const auto each = [&](size_t begin, const std::vector<int32_t>& of, int32_t none, int32_t base) {
    for (size_t i = begin; i < count; ++i) {
      *out++ = seen[i] == ParserState::kNone ? none : base + of[static_cast<size_t>(seen[i])];
    }
  };
  each(0, sentence.words, vocabulary.NoWord(), 0);
  each(0, sentence.tags, vocabulary.NoTag(), 0);
  const int32_t none = vocabulary.NoRelation();
  each(first_dependent, state.tree().labels, none, none + 1);
}

}  // namespace planish::lab
