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

/// Text for character models, with the fields of RunConfig::Data. A character is a byte, so every
/// file is a text, and bits per character are comparable with compressors and other byte models.
/// Longer characters of UTF-8 count as several.
struct Text {
  std::string characters;
  std::string name;         ///< "synthetic plays", or the file's name
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence
  std::string sha256;       ///< of `characters`
  /// Entropy of a synthetic text's random choices in bits per character: the minimum that any model
  /// needs on average. Absent for files.
  std::optional<double> entropy = {};
};

inline constexpr int64_t kMaxSyntheticText = 1'000'000;

/// Generates short plays from a small random grammar: numbered scenes of two people who speak in
/// turns about a thing. They have dependencies at the distance of a letter, a word, a sentence and
/// a scene, such as agreement of verbs and closed quotations. A seed determines the bytes on every
/// machine; a shorter text is a prefix of a longer one. Throws UsageError if `length` is not from 1
/// to kMaxSyntheticText.
Text MakeText(int64_t length, int64_t seed = 1);

/// Returns the first `max_characters` characters of a file, or all if it has fewer. Unpacks gzip
/// and drops a UTF-8 byte order mark. In a folder the file is input.txt or input.txt.gz, directly
/// or in its tinyshakespeare; its name is then the folder's. Throws DataError if there is no such
/// file, if it is empty, has a zero byte or is in UTF-16 or UTF-32, and like FileContent.
Text ReadText(const std::filesystem::path& path, int64_t max_characters);

/// Returns ReadText if there is a path, else MakeText of min(most, kMaxSyntheticText) characters.
Text OpenText(const std::optional<std::filesystem::path>& path, int64_t max_characters);

/// Distinct characters of a text, numbered from 0 in the order of their bytes.
class Vocabulary {
 public:
  explicit Vocabulary(std::string_view text);

  int64_t size() const { return static_cast<int64_t>(characters_.size()); }

  bool Contains(char character) const { return index_[static_cast<uint8_t>(character)] >= 0; }

  /// Returns the index of each character of `text`. Throws DataError for one that is not in the
  /// vocabulary.
  std::vector<uint8_t> Encode(std::string_view text) const;

  /// Returns the character with index `index`, which must be from 0 to size() - 1.
  char Decode(int64_t index) const { return characters_.at(static_cast<size_t>(index)); }

 private:
  std::string characters_;
  std::array<int16_t, 256> index_;  // -1: not in the vocabulary
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_TEXT_H_
