#ifndef PLANISH_LAB_DOWNSTREAM_SENTENCE_SETS_H_
#define PLANISH_LAB_DOWNSTREAM_SENTENCE_SETS_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

// The sets that sentence vectors are judged by (Kiros et al. 2015; Ba et al. 2016, Table 3).
namespace planish::lab {

/// Sentences of two classes, in the order of their files.
struct ClassifiedSentences {
  std::string name;  ///< "mr", "cr", "subj", "mpqa" or "made"
  std::vector<std::string> sentences = {};
  std::vector<int64_t> labels = {};  ///< 0 or 1
  int64_t empty = 0;                 ///< sentences without a word, which the sets have some of

  int64_t size() const { return static_cast<int64_t>(sentences.size()); }
};

/// Pairs of sentences and how related they are.
struct RelatedPairs {
  std::vector<std::string> a, b;
  std::vector<double> scores;  ///< from 1 to 5

  int64_t size() const { return static_cast<int64_t>(scores.size()); }
};

/// SICK (Marelli et al. 2014).
struct Sick {
  RelatedPairs train, valid, test;  ///< the files call the second one "trial"
};

/// The sets that there are.
struct SentenceEvaluationSets {
  std::optional<Sick> sick;
  std::vector<ClassifiedSentences> classified;
  std::string description;  ///< "sick (9,927 pairs), mr (10,662)", or "none"
  std::string sha256;       ///< of what was read, set after set

  bool empty() const { return !sick && classified.empty(); }
};

/// A file of SICK: a line with the names of its columns, then pair_ID, sentence_A, sentence_B,
/// relatedness_score (1 to 5) and entailment_judgment with tabs between them; lines end in "\n" or
/// "\r\n". Throws DataError with the file and the line.
RelatedPairs ReadSick(const std::filesystem::path& file);

/// A file of which every line is 0 or 1, a blank and a sentence, which may be empty. It is UTF-8
/// or, where it is not, Windows-1252; "\n" or "\r\n" ends a line. Throws DataError with the file
/// and the line.
ClassifiedSentences ReadClassified(const std::filesystem::path& file, const std::string& name);

/// Two files of one sentence a line, of class 1 and of class 0, in this order.
ClassifiedSentences ReadClassPair(const std::filesystem::path& ones,
                                  const std::filesystem::path& zeros, const std::string& name);

/// Of `folder` the sets that are there: below it, or in it,
///   sick/SICK_{train,trial,test_annotated}.txt   mr/rt-polarity.{pos,neg}   cr/custrev.all
///   subj/subj.all   mpqa/mpqa.all
/// Throws DataError where a set is there in part, and what the functions above throw.
SentenceEvaluationSets ReadSentenceEvaluationSets(const std::filesystem::path& folder);

/// Sentences of the made stories' grammar, of class 1 where they are of the sea or the farm.
SentenceEvaluationSets MakeSentenceEvaluationSets(int64_t sentences);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DOWNSTREAM_SENTENCE_SETS_H_
