#ifndef PLANISH_LAB_DATA_TEXT_H_
#define PLANISH_LAB_DATA_TEXT_H_

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace planish::lab {

/// A text for character models, with what RunConfig::Data records of it. A character is a byte:
/// every file is then a text, and bits per character can be compared with what compressors and
/// other byte models give. UTF-8's longer characters count as several.
struct Text {
  std::string characters;
  std::string name;         ///< "made plays", or the file's name
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence for people
  std::string sha256;       ///< of `characters`
  /// Bits a character that the random choices behind a made text take: the least that any model
  /// needs on average. Nothing where the text was read.
  std::optional<double> entropy = {};
};

inline constexpr int64_t kMaxSyntheticText = 1'000'000;

/// Short plays that a small random grammar makes: numbered scenes in which two of eight people,
/// who stay the same for the scene, speak by turns about a thing that both carry off at its end.
/// Verbs agree in number with nouns that clauses separate from them, quotations close, lists count
/// up to their noun. So there is something to learn at the distance of a letter, a word, a sentence
/// and a scene. The same seed gives the same bytes on every machine, and a shorter text is the
/// beginning of a longer one. Throws UsageError when `length` is not from 1 to kMaxSyntheticText.
Text MakeText(int64_t length, int64_t seed = 1);

/// Returns the first `most` characters of a file, or all if it has fewer. A gzip file is unpacked
/// and a byte order mark of UTF-8 left out. In a folder the file is input.txt or input.txt.gz, in
/// it or in its tinyshakespeare; such a file lends its folder's name. Throws DataError if there is
/// no such file, if it is empty, has a zero byte or is in UTF-16 or UTF-32, and what FileContent
/// throws.
Text ReadText(const std::filesystem::path& path, int64_t most);

/// ReadText where there is a path, else MakeText of min(most, kMaxSyntheticText) characters.
Text OpenText(const std::optional<std::filesystem::path>& path, int64_t most);

/// The different characters of a text, numbered from 0 in the order of their bytes.
class Vocabulary {
 public:
  explicit Vocabulary(std::string_view text);

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }

  bool Contains(char character) const { return index_[static_cast<uint8_t>(character)] >= 0; }

  /// The number of each character of `text`. Throws DataError for one that is not in the
  /// vocabulary.
  std::vector<uint8_t> Encode(std::string_view text) const;

  /// The character that has the number `index`, which must be from 0 to size() - 1.
  char Decode(int64_t index) const { return characters_.at(static_cast<size_t>(index)); }

 private:
  std::string characters_;
  std::array<int16_t, 256> index_;  // -1: not in the vocabulary
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_TEXT_H_
