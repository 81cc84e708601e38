#ifndef PLANISH_LAB_DATA_CONLLU_H_
#define PLANISH_LAB_DATA_CONLLU_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace planish::lab {

/// Word of a sentence with its place in the dependency tree.
struct TreeWord {
  std::string form;
  std::string upos;      ///< universal part of speech, column 4 of CoNLL-U
  std::string xpos;      ///< language-specific part of speech, column 5
  int32_t head = 0;      ///< index of its head, from 1; 0 for the root
  std::string relation;  ///< relation to its head, with a subtype if any: "nmod:poss"
};

/// Sentence: word i is words[i - 1].
struct DependencyTree {
  std::vector<TreeWord> words;
};

/// Sentences of a file, and the number of skipped lines.
struct Treebank {
  std::vector<DependencyTree> trees;
  int64_t ranges = 0;       ///< lines of multiword tokens, such as 1-2
  int64_t empty_nodes = 0;  ///< lines of empty nodes, such as 8.1
};

/// Parses sentences in CoNLL-U (universaldependencies.org/format.html) or CoNLL-X. Skips comments;
/// skips and counts lines of multiword tokens and empty nodes. Throws DataError naming `name`, the
/// line and the error, if a sentence is not a tree with one root or a line is malformed. Every
/// sentence must end with an empty line, and there must be at least one.
Treebank ParseConllu(std::string_view text, const std::string& name);

/// Treebanks for training and evaluation, with the fields of RunConfig::Data.
struct TreebankSet {
  Treebank train, valid, test;
  std::string name;         ///< of the folder, or "synthetic trees"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence
  std::string sha256;       ///< of the three CoNLL-U texts, concatenated
};

/// Reads the treebank in `folder` or its subfolder ud_ewt. File names contain "train", "dev" or
/// "valid", or "test", and end in .conllu, .conllu.gz, .conll or .conll.gz. Throws DataError unless
/// there is one file of each set, if a file cannot be read or is a damaged gzip stream, and like
/// ParseConllu.
TreebankSet ReadTreebanks(const std::filesystem::path& folder);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_CONLLU_H_
