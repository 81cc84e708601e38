#ifndef PLANISH_LAB_TASKS_HANDWRITING_ALPHABET_H_
#define PLANISH_LAB_TASKS_HANDWRITING_ALPHABET_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace planish::lab {

/// Returns the characters of `text`, UTF-8, one by one.
std::vector<std::string_view> CharactersOf(std::string_view text);

/// Symbols of characters. Graves 2013, section 5, has 57: the letters, some unspecified
/// punctuation, and one for all other characters.
class Alphabet {
 public:
  /// Symbol of all characters without their own.
  static constexpr int64_t kOther = 0;

  /// Has the 52 letters, blank, comma, full stop and apostrophe: 57 symbols with kOther. With
  /// `digits`, 67.
  explicit Alphabet(bool digits);

  int64_t size() const { return static_cast<int64_t>(characters_.size()) + 1; }

  /// Returns a symbol for every character of `text`, UTF-8.
  std::vector<int64_t> Encode(std::string_view text) const;

 private:
  std::string characters_;  // of symbol 1 and on
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_HANDWRITING_ALPHABET_H_
