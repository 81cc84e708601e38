#ifndef PLANISH_LAB_TASKS_MT_PARALLEL_H_
#define PLANISH_LAB_TASKS_MT_PARALLEL_H_

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lab/tasks/mt/synthetic_translation.h"

namespace planish::lab {

/// Set of sentence pairs, and the direction of translation.
struct ParallelRequest {
  /// "multi30k", "tatoeba", "iwslt14" or "files"; "synthetic" for MakeTranslations; "auto" for
  /// multi30k in a folder that has it, other files of a path, and synthetic without a path.
  std::string data = "auto";
  /// "en-de": from en to de. The names of your own files end in these two; the other sets have en
  /// and de.
  std::string direction = "en-de";
  /// Languages of the columns of a table of your own; empty: those of `direction`.
  std::string columns = {};
  /// Seed of the random sets of files that have no sets.
  int64_t split_seed = 1;
  /// Maximum number of training pairs: the first ones.
  int64_t train_pairs = std::numeric_limits<int64_t>::max();
};

/// Sentence pairs with the fields of RunConfig::Data.
struct ParallelText {
  std::vector<SentencePair> train, valid, test;
  std::string name;         ///< "multi30k en-de"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence, with the left-out pairs and the reasons
  std::string sha256;       ///< of the pairs, in order
};

/// Returns the direction of your own table at `path`, a file or a folder with tables: the two
/// language codes in the name of the file or of its folder ("vi-en" of iwslt15.vi-en.tsv), or else
/// "source-target". Returns nullopt for other data, or if files have the languages of `direction`
/// as endings. Reads no file's content.
std::optional<std::string> DirectionOfTable(const std::filesystem::path& path,
                                            const std::string& direction);

/// Reads sentence pairs: line i of one language's file translates line i of the other's, or a line
/// of a table has both with a tab between them. Leaves out pairs with a blank side and counts them
/// in `description`. docs/data.md lists the files of each set, docs/tasks/mt.md the split of files
/// without sets. `path` is a folder, or with "files" and "tatoeba" also a table or one of two
/// parallel files. Throws UsageError for a direction that the set does not have, or if the set
/// needs a path. Throws DataError for missing files, files of unequal length, a line without a tab
/// or a split without pairs, and like ReadLines.
ParallelText OpenParallel(const std::optional<std::filesystem::path>& path,
                          const ParallelRequest& request);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_PARALLEL_H_
