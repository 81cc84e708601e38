#ifndef PLANISH_LAB_DATA_SENTENCES_H_
#define PLANISH_LAB_DATA_SENTENCES_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lab/data/sha256.h"

// Sentences with classes, such as opinions of reviewers.
namespace planish::lab {

/// Sentences with their class indices. Every sentence has words.
struct Sentences {
  std::vector<std::vector<std::string>> words;
  std::vector<int64_t> labels;

  int64_t size() const { return static_cast<int64_t>(words.size()); }
  void Add(std::vector<std::string> sentence, int64_t label);
};

/// Name of files whose checksum is not that of a known data set.
inline constexpr char kUnknownSentences[] = "labelled sentences";

/// Sets of a task, with the fields of RunConfig::Data.
struct SentenceSets {
  Sentences train, valid, test;
  /// Indices of the test sentences in the data set, if the run's seed chose them; empty for a test
  /// set that all runs share.
  std::vector<int64_t> test_items;
  int64_t classes = 0;      ///< labels are from 0 to classes - 1
  std::string name;         ///< "rt", "sst5", "synthetic opinions", or another name of files
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence
  std::string sha256;       ///< of the files' lines, each with "\n", or of the synthetic sentences
};

/// Reader of files with one sentence a line and words separated by blanks (spaces, tabs, no-break
/// spaces). Counts what it leaves out.
class SentenceReader {
 public:
  /// Cuts sentences to `longest` words.
  explicit SentenceReader(int64_t longest) : longest_(longest) {}

  /// Reads sentences of the class `label`. Throws like ReadLines.
  Sentences Read(const std::filesystem::path& file, int64_t label);

  /// Reads lines of a class index, 0 to classes - 1, and a sentence. Throws DataError naming an
  /// invalid line, and like ReadLines.
  Sentences ReadLabelled(const std::filesystem::path& file, int64_t classes);

  /// Appends the words of `line`, cut to `longest`, to `sentences`. Only counts it if it has none.
  void Add(std::string_view line, int64_t label, Sentences* sentences);

  int64_t empty() const { return empty_; }  ///< lines without words, left out
  int64_t cut() const { return cut_; }      ///< sentences that were cut

  /// Returns text like "; 2 empty lines left out; 1 sentence cut to 64 words", or "" if there were
  /// none.
  std::string Counts() const;

  /// Returns the hash of the lines read so far. Ends reading.
  std::string Sha256OfLines() { return sha_.Hex(); }

 private:
  void Hash(const std::vector<std::string>& lines);

  int64_t longest_;
  int64_t empty_ = 0, cut_ = 0;
  Sha256 sha_;
};

/// Returns `folder` or `folder`/`name`, whichever contains `file` or `file`.gz. Throws DataError if
/// neither does.
std::filesystem::path FolderWith(const std::filesystem::path& folder, const std::string& name,
                                 const std::string& file);

/// Indices of words: 0 for unknown words, the others by falling frequency and then by their bytes.
class Lexicon {
 public:
  /// Includes words that occur at least `min_count` times.
  Lexicon(const Sentences& sentences, int64_t min_count);

  /// Returns the number of words, including the unknown one.
  int64_t size() const { return static_cast<int64_t>(numbers_.size()) + 1; }

  /// Returns the index of `word`, or 0 if it is unknown.
  int32_t Number(const std::string& word) const;

 private:
  std::unordered_map<std::string, int32_t> numbers_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_SENTENCES_H_
