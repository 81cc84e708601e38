#ifndef PLANISH_LAB_TASKS_PARSER_FEATURES_H_
#define PLANISH_LAB_TASKS_PARSER_FEATURES_H_

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lab/data/conllu.h"
#include "lab/tasks/parser/transitions.h"

// Model inputs from a ParserState: Chen & Manning's 48 features (2014, 3.1). A feature is the index
// of a token: a word, a tag or a relation, all in one range.
namespace planish::lab {

/// Number of words whose form and tag are features: the first three of stack and buffer (6), and of
/// the first two of the stack the outermost and second dependents on both sides (8), the leftmost
/// of the leftmost and the rightmost of the rightmost (4). Relations of these twelve dependents are
/// features, too.
inline constexpr int64_t kSeenWords = 18;
inline constexpr int64_t kSeenRelations = 12;
inline constexpr int64_t kFeatures = 2 * kSeenWords + kSeenRelations;

struct VocabularyOptions {
  bool xpos = false;      ///< tags are language-specific (xpos), not universal
  bool subtypes = false;  ///< relations keep the part after the colon
  int64_t min_count = 2;  ///< words seen less often in training are unknown
};

/// Sentence as indices. Position 0 is ROOT.
struct EncodedSentence {
  std::vector<int32_t> words;  ///< [n + 1] tokens
  std::vector<int32_t> tags;   ///< [n + 1] tokens
  Tree tree;                   ///< label -1 if the relation does not occur in training
  std::vector<bool> scored;    ///< [n + 1] false for ROOT and punctuation
};

/// Words (ASCII letters in lower case), tags and relations of the training trees.
class ParserVocabulary {
 public:
  ParserVocabulary() = default;
  ParserVocabulary(std::span<const DependencyTree> train, const VocabularyOptions& options);

  EncodedSentence Encode(const DependencyTree& tree) const;

  int64_t words() const { return words_; }  ///< with NULL, ROOT and the unknown word
  int64_t tags() const { return tags_; }    ///< with NULL, ROOT and the unknown tag
  int64_t labels() const { return static_cast<int64_t>(labels_.size()); }
  /// Returns the number of words, tags, and relations with NULL. Indices are in this order.
  int64_t tokens() const { return words_ + tags_ + 1 + labels(); }

  /// Returns the token of "no relation"; that of label l is NoRelation() + 1 + l.
  int32_t NoRelation() const { return static_cast<int32_t>(words_ + tags_); }
  int32_t NoWord() const { return 0; }
  int32_t NoTag() const { return static_cast<int32_t>(words_); }

  struct Label {
    std::string relation;
    bool at_root = false;    ///< seen as the relation of a root
    bool elsewhere = false;  ///< seen between words
  };
  const std::vector<Label>& label_list() const { return labels_; }

 private:
  std::string Relation(const std::string& relation) const;
  const std::string& Tag(const TreeWord& word) const;

  VocabularyOptions options_;
  int64_t words_ = 0, tags_ = 0;
  std::unordered_map<std::string, int32_t> word_tokens_, tag_tokens_, label_numbers_;
  std::vector<Label> labels_;
};

/// Returns true for punctuation, which attachment scores exclude: the tag PUNCT of Universal
/// Dependencies, and `` '' , . : of the Penn Treebank, if column 4 has its tags.
bool IsPunctuation(const TreeWord& word);

/// Writes the features of `state`: tokens of 18 words, of their 18 tags, of 12 relations.
void ExtractFeatures(const ParserState& state, const EncodedSentence& sentence,
                     const ParserVocabulary& vocabulary, std::span<int32_t, kFeatures> features);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_PARSER_FEATURES_H_
