#ifndef PLANISH_LAB_DATA_TEXT_H_
#define PLANISH_LAB_DATA_TEXT_H_

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace planish::lab {

/// Unit that a character model reads. Bytes make any file a text, and bits comparable with
/// compressors and other byte models. Characters are those of UTF-8.
enum class TextUnit { kByte, kCharacter };

/// Text for character models, with the fields of RunConfig::Data.
struct Text {
  std::string characters;   ///< UTF-8 if `unit` is kCharacter, else any bytes
  std::string name;         ///< "synthetic plays", or the file's name
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence
  std::string sha256;       ///< of `characters`
  /// Entropy of a synthetic text's random choices in bits per character: the minimum that any model
  /// needs on average. Absent for files.
  std::optional<double> entropy = {};
  TextUnit unit = TextUnit::kByte;
};

inline constexpr int64_t kMaxSyntheticText = 1'000'000;

/// Generates short plays from a small random grammar: numbered scenes of two people who speak in
/// turns about a thing. They have dependencies at the distance of a letter, a word, a sentence and
/// a scene, such as agreement of verbs and closed quotations. A seed determines the bytes on every
/// machine; a shorter text is a prefix of a longer one. Throws UsageError if `length` is not from 1
/// to kMaxSyntheticText.
Text MakeText(int64_t length, int64_t seed = 1);

/// Returns the first `max_characters` units of a file, or all if it has fewer. Unpacks gzip and
/// drops a UTF-8 byte order mark. In a folder the file is input.txt or input.txt.gz, directly or in
/// its tinyshakespeare; its name is then the folder's. Throws DataError if there is no such file,
/// if it is empty, has a zero byte or is in UTF-16 or UTF-32, and like FileContent. Throws it also,
/// naming the line, for what is not UTF-8 if the unit is kCharacter.
Text ReadText(const std::filesystem::path& path, int64_t max_characters,
              TextUnit unit = TextUnit::kByte);

/// Returns ReadText if there is a path, else MakeText of min(most, kMaxSyntheticText) characters.
Text OpenText(const std::optional<std::filesystem::path>& path, int64_t max_characters,
              TextUnit unit = TextUnit::kByte);

/// Returns the first unit of `text`, which must not be empty. A byte that is not UTF-8 is a unit.
std::string_view FirstUnit(std::string_view text, TextUnit unit);

/// Returns the number of units of `text`.
int64_t CountUnits(std::string_view text, TextUnit unit);

/// Distinct units of a text, numbered from 0 in the order of their bytes.
class Vocabulary {
 public:
  explicit Vocabulary(std::string_view text, TextUnit unit = TextUnit::kByte);

  int64_t size() const { return static_cast<int64_t>(symbols_.size()); }
  TextUnit unit() const { return unit_; }

  /// Returns true if `symbol`, one unit, is in the vocabulary.
  bool Contains(std::string_view symbol) const { return Find(symbol) >= 0; }

  /// Removes the first unit from `text`, which must not be empty, and returns its index. Throws
  /// DataError if it is not in the vocabulary.
  int32_t Take(std::string_view& text) const;

  /// Returns the index of each unit of `text`. Throws like Take.
  std::vector<int32_t> Encode(std::string_view text) const;

  /// Returns the unit with index `index`, which must be from 0 to size() - 1.
  const std::string& Decode(int64_t index) const { return symbols_.at(static_cast<size_t>(index)); }

 private:
  // Returns the index of a unit, or -1.
  int32_t Find(std::string_view symbol) const;

  TextUnit unit_;
  std::vector<std::string> symbols_;
  std::array<int32_t, 256> of_byte_;  // of units of one byte; -1: not in the vocabulary
  std::unordered_map<std::string, int32_t> of_longer_;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_TEXT_H_
