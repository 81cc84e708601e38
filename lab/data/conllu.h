#ifndef PLANISH_LAB_DATA_CONLLU_H_
#define PLANISH_LAB_DATA_CONLLU_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace planish::lab {

/// A word of a sentence with its place in the sentence's dependency tree.
struct TreeWord {
  std::string form;
  std::string upos;      ///< universal part of speech, column 4 of CoNLL-U
  std::string xpos;      ///< the language's own part of speech, column 5
  int32_t head = 0;      ///< the word it depends on, counted from 1; 0 where it is the root
  std::string relation;  ///< to its head, with the subtype where it has one: "nmod:poss"
};

/// A sentence: word i is words[i - 1].
struct DependencyTree {
  std::vector<TreeWord> words;
};

/// The sentences of a file, and what was left out of them.
struct Treebank {
  std::vector<DependencyTree> trees;
  int64_t ranges = 0;       ///< lines of multiword tokens, such as 1-2
  int64_t empty_nodes = 0;  ///< lines of empty nodes, such as 8.1
};

/// The sentences of CoNLL-U (universaldependencies.org/format.html), or of CoNLL-X, which has as
/// many columns. Comments are skipped, lines of multiword tokens and empty nodes skipped and
/// counted. A sentence must be a tree with one root. Throws DataError that names `name`, the line
/// and what is wrong: invalid UTF-8, not ten columns or an empty one, ids that do not count up, a
/// head that is no word, no or several roots, a cycle, a sentence without an empty line after it,
/// no sentence at all.
Treebank ParseConllu(std::string_view text, const std::string& name);

/// What to train and to measure on, with what RunConfig::Data records of it.
struct TreebankSet {
  Treebank train, valid, test;
  std::string name;         ///< of the folder, or "made trees"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence for people
  std::string sha256;       ///< of the three texts of CoNLL-U, one after the other
};

/// The treebank in `folder`, or in its folder ud_ewt: the one file each whose name has "train",
/// "dev" or "valid", and "test" in it and ends in .conllu, .conllu.gz, .conll or .conll.gz. Throws
/// DataError when there is none or several, or one cannot be read, is a broken gzip stream, or is
/// what ParseConllu refuses.
TreebankSet ReadTreebanks(const std::filesystem::path& folder);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_CONLLU_H_
