#ifndef PLANISH_LAB_DOWNSTREAM_SENTENCE_SETS_H_
#define PLANISH_LAB_DOWNSTREAM_SENTENCE_SETS_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

// Evaluation sets of sentence vectors (Kiros et al. 2015; Ba et al. 2016, Table 3).
namespace planish::lab {

/// Sentences of two classes, in the order of their files.
struct ClassifiedSentences {
  std::string name;  ///< "mr", "cr", "subj", "mpqa" or "synthetic"
  std::vector<std::string> sentences = {};
  std::vector<int64_t> labels = {};  ///< 0 or 1
  int64_t empty = 0;                 ///< sentences without words, which the sets contain

  int64_t size() const { return static_cast<int64_t>(sentences.size()); }
};

/// Pairs of sentences with their relatedness.
struct RelatedPairs {
  std::vector<std::string> a, b;
  std::vector<double> scores;  ///< from 1 to 5

  int64_t size() const { return static_cast<int64_t>(scores.size()); }
};

/// SICK (Marelli et al. 2014).
struct Sick {
  RelatedPairs train, valid, test;  ///< the files call `valid` "trial"
};

/// Available sets.
struct SentenceEvaluationSets {
  std::optional<Sick> sick;
  std::vector<ClassifiedSentences> classified;
  std::string description;  ///< "sick (9,927 pairs), mr (10,662)", or "none"
  std::string sha256;       ///< of all sets read, in order

  bool empty() const { return !sick && classified.empty(); }
};

/// Reads a file of SICK. The first line has the names of the columns, separated by tabs: pair_ID,
/// sentence_A, sentence_B, relatedness_score (1 to 5) and entailment_judgment. Lines end in "\n" or
/// "\r\n". Throws DataError naming the file and the line.
RelatedPairs ReadSick(const std::filesystem::path& file);

/// Reads a file whose lines are 0 or 1, a blank and a sentence, which can be empty. It is UTF-8 or
/// else Windows-1252; "\n" or "\r\n" ends a line. Throws DataError naming the file and the line.
ClassifiedSentences ReadClassified(const std::filesystem::path& file, const std::string& name);

/// Reads two files of one sentence a line, of class 1 and of class 0.
ClassifiedSentences ReadClassPair(const std::filesystem::path& ones,
                                  const std::filesystem::path& zeros, const std::string& name);

/// Reads the sets that exist in `folder` or its subfolders; docs/data.md lists their files. Throws
/// DataError if a set is incomplete, and like the functions above.
SentenceEvaluationSets ReadSentenceEvaluationSets(const std::filesystem::path& folder);

/// Returns sentences of the synthetic stories' grammar, with class 1 for those of the sea or the
/// farm.
SentenceEvaluationSets MakeSentenceEvaluationSets(int64_t sentences);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DOWNSTREAM_SENTENCE_SETS_H_
