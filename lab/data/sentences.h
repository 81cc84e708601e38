#ifndef PLANISH_LAB_DATA_SENTENCES_H_
#define PLANISH_LAB_DATA_SENTENCES_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lab/data/sha256.h"

// Sentences that belong to classes, such as a reviewer's opinions.
namespace planish::lab {

/// Sentences, each with the number of its class. No sentence is without words.
struct Sentences {
  std::vector<std::vector<std::string>> words;
  std::vector<int64_t> labels;

  int64_t size() const { return static_cast<int64_t>(words.size()); }
  void Add(std::vector<std::string> sentence, int64_t label);
};

/// The name of files whose checksum is not that of a known data set.
inline constexpr char kUnknownSentences[] = "labelled sentences";

/// The sets of a task, with what RunConfig::Data records of them.
struct SentenceSets {
  Sentences train, valid, test;
  std::string name;         ///< "rt", "sst5", kUnknownSentences or "made opinions"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence for people
  std::string sha256;       ///< of the files' lines, each with "\n", or of the made ones
};

/// Reads files of one sentence a line, whose words are separated by blanks (spaces, tabs, no-break
/// spaces). What it left out on the way, it counts.
class SentenceReader {
 public:
  /// Sentences of more than `longest` words lose the others.
  explicit SentenceReader(int64_t longest) : longest_(longest) {}

  /// Every line is a sentence of the class `label`. Throws what ReadLines throws.
  Sentences Read(const std::filesystem::path& file, int64_t label);

  /// Every line is the number of a class, 0 to classes - 1, and a sentence. Throws DataError with
  /// the number of a line that is not, and what ReadLines throws.
  Sentences ReadLabelled(const std::filesystem::path& file, int64_t classes);

  int64_t empty() const { return empty_; }  ///< lines without a word, which were left out
  int64_t cut() const { return cut_; }      ///< sentences that lost words

  /// "; 2 empty lines left out; 1 sentence cut to 64 words": nothing where there were none.
  std::string Counts() const;

  /// Of the lines read so far. Ends reading.
  std::string Sha256OfLines() { return sha_.Hex(); }

 private:
  void Add(std::string_view line, int64_t label, Sentences* sentences);
  void Hash(const std::vector<std::string>& lines);

  int64_t longest_;
  int64_t empty_ = 0, cut_ = 0;
  Sha256 sha_;
};

/// Returns `folder` or `folder`/`name`, whichever holds `file` or `file`.gz. Throws DataError if
/// neither does.
std::filesystem::path FolderWith(const std::filesystem::path& folder, const std::string& name,
                                 const std::string& file);

/// Numbers of words: 0 stands for all that it does not know, the others follow by falling frequency
/// and, where that is the same, by their bytes.
class Lexicon {
 public:
  /// The words that occur at least `least` times.
  Lexicon(const Sentences& sentences, int64_t least);

  /// With the unknown one.
  int64_t size() const { return static_cast<int64_t>(numbers_.size()) + 1; }

  /// The number of `word`, 0 where the lexicon does not have it.
  int32_t Number(const std::string& word) const;

 private:
  std::unordered_map<std::string, int32_t> numbers_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_SENTENCES_H_
