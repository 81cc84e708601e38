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

/// Which sentence pairs are wanted, and which of the two languages is the source.
struct ParallelRequest {
  /// "multi30k", "tatoeba", "iwslt14" or "files"; "made" for MakeTranslations; "auto" for multi30k
  /// where there is a folder, else made.
  std::string data = "auto";
  /// "en-de": from en to de. Files of one's own end in these names, whatever they are; the other
  /// sets have en and de.
  std::string direction = "en-de";
  /// So many training pairs are used, the first ones.
  int64_t train_pairs = std::numeric_limits<int64_t>::max();
};

/// Sentence pairs with what RunConfig::Data records of them.
struct ParallelText {
  std::vector<SentencePair> train, valid, test;
  std::string name;         ///< "multi30k en-de"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence for people, with what was left out and why
  std::string sha256;       ///< of the pairs, in order
};

/// Reads sentence pairs, of which line i of one language's file translates line i of the other's.
/// Files are plain or gzip, with or without ".gz" in their names. Pairs with a blank side are left
/// out and counted in `description`.
///
/// - multi30k: {train,val,test_2016_flickr}.{en,de} in `folder`, or in task1 or multi30k/task1
///   below it.
/// - iwslt14: {train | train_sample4600,valid,test}.{en,de} in `folder` or iwslt14_deen below it.
/// - tatoeba: `folder` itself where it is a file, else deu.txt in it or in tatoeba_deu_eng below
///   it, whose lines are English, a tab and German. A twentieth of the different English sentences,
///   2,000 at most, chosen by a fixed shuffle, is the test set, and as much validation, with the
///   first German of each; training pairs with a sentence, of either language, that is among those
///   are left out.
/// - files: {train,valid | val | dev,test}.LANGUAGE in `folder`.
///
/// Throws UsageError for a direction that the set has not, or a set that needs a folder without
/// one; DataError for missing files, files of unequal length, a split without pairs, and what
/// ReadLines throws.
ParallelText OpenParallel(const std::optional<std::filesystem::path>& folder,
                          const ParallelRequest& request);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_MT_PARALLEL_H_
