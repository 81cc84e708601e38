#include "lab/tasks/skip-thoughts/words.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace planish::lab {

namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::array<Pair, 17> kPlain = {{
    {"\u2018", "'"},
    {"\u2019", "'"},
    {"\u201b", "'"},
    {"\u201c", "\""},
    {"\u201d", "\""},
    {"\u201e", "\""},
    {"\u00ab", "\""},
    {"\u00bb", "\""},
    {"\u2013", "--"},
    {"\u2014", "--"},
    {"\u2026", "..."},
    {"\u00a0", " "},
    {"\u202f", " "},
    {"\t", " "},
    {"_", ""},
    {"``", "\""},
    {"''", "\""},
}};

// In lower case, without their points.
constexpr std::array<std::string_view, 24> kAbbreviations = {
    "capt", "cf",     "co",   "col", "dr", "e.g", "esq", "gen",  "hon", "i.e", "jr", "lieut",
    "lt",   "messrs", "mlle", "mme", "mr", "mrs", "ms",  "prof", "rev", "sr",  "st", "vol"};

constexpr std::array<std::string_view, 7> kEndings = {"n't", "'s", "'m", "'d", "'re", "'ve", "'ll"};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsWordCharacter(char c) {
  return IsDigit(c) || IsUpper(c) || IsLower(c) || static_cast<uint8_t>(c) >= 0x80;
}
bool Closes(char c) { return c == '"' || c == '\'' || c == ')' || c == ']'; }

std::string InLowerCase(std::string_view text) {
  std::string lower(text);
  for (size_t i = 0; i < lower.size(); ++i) {
    if (IsUpper(lower[i])) lower[i] = static_cast<char>(lower[i] - 'A' + 'a');
    // U+00C0 to U+00DE except the multiplication sign, U+00D7.
    if (lower[i] == '\xc3' && i + 1 < lower.size()) {
      const auto second = static_cast<uint8_t>(lower[i + 1]);
      if (second >= 0x80 && second <= 0x9e && second != 0x97) {
        lower[i + 1] = static_cast<char>(second + 0x20);
      }
    }
  }
  return lower;
}

// Returns true if the point of the word that ends at `end` ends no sentence.
bool IsAbbreviation(std::string_view text, size_t end) {
  size_t begin = end;
  while (begin > 0 && (IsWordCharacter(text[begin - 1]) || text[begin - 1] == '.')) --begin;
  const std::string_view word = text.substr(begin, end - begin);
  if (word.size() == 1 && IsUpper(word[0])) return word != "I";
  return std::ranges::find(kAbbreviations, InLowerCase(word)) != kAbbreviations.end();
}

// Returns the length of the word of letters and digits that begins at `begin`.
size_t WordLength(std::string_view text, size_t begin) {
  size_t i = begin;
  const auto at = [&](size_t k) { return k < text.size() ? text[k] : ' '; };
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (IsWordCharacter(c)) continue;
    if (i == begin) break;
    const bool joins = (c == '\'' || c == '-') && IsWordCharacter(at(i + 1));
    const bool in_number = (c == '.' || c == ',') && IsDigit(at(i - 1)) && IsDigit(at(i + 1));
    if (!joins && !in_number) break;
  }
  return i - begin;
}

}  // namespace

std::string PlainPunctuation(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    // Most characters are unchanged.
    if (IsDigit(text[i]) || IsUpper(text[i]) || IsLower(text[i]) || text[i] == ' ') {
      plain += text[i++];
      continue;
    }
    const auto found = std::ranges::find_if(
        kPlain, [&](const Pair& p) { return text.substr(i).starts_with(p.first); });
    if (found == kPlain.end()) {
      plain += text[i++];
    } else {
      plain += found->second;
      i += found->first.size();
    }
  }
  return plain;
}

std::vector<std::string> SplitIntoSentences(std::string_view paragraph) {
  std::vector<std::string> sentences;
  size_t begin = 0;
  const auto add = [&](size_t end) {
    while (begin < end && paragraph[begin] == ' ') ++begin;
    size_t last = end;
    while (last > begin && paragraph[last - 1] == ' ') --last;
    if (last > begin) sentences.emplace_back(paragraph.substr(begin, last - begin));
    begin = end;
  };
  const auto is_mark = [&](size_t i) {
    return paragraph[i] == '.' || paragraph[i] == '!' || paragraph[i] == '?';
  };
  for (size_t i = 0; i < paragraph.size(); ++i) {
    if (!is_mark(i)) continue;
    size_t end = i + 1;
    while (end < paragraph.size() && is_mark(end)) ++end;
    const bool single_point = paragraph[i] == '.' && end == i + 1;
    while (end < paragraph.size() && Closes(paragraph[end])) ++end;
    size_t next = end;
    while (next < paragraph.size() && paragraph[next] == ' ') ++next;
    const bool ends = next == paragraph.size() ||
                      (next > end && !(single_point && IsAbbreviation(paragraph, i)) && [&] {
                        // Opening quotes precede the letter.
                        size_t letter = next;
                        while (letter < paragraph.size() && !IsWordCharacter(paragraph[letter]))
                          ++letter;
                        return letter == paragraph.size() || !IsLower(paragraph[letter]);
                      }());
    if (ends) add(end);
    i = end - 1;
  }
  add(paragraph.size());
  return sentences;
}

std::vector<std::string> SplitIntoWords(std::string_view sentence) {
  const std::string text = InLowerCase(PlainPunctuation(sentence));
  std::vector<std::string> words;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == ' ') {
      ++i;
      continue;
    }
    if (const size_t length = WordLength(text, i)) {
      const std::string_view word = std::string_view(text).substr(i, length);
      const auto ending = std::ranges::find_if(kEndings, [&](std::string_view e) {
        return word.size() > e.size() && word.ends_with(e);
      });
      const size_t stem = ending == kEndings.end() ? length : length - ending->size();
      words.emplace_back(word.substr(0, stem));
      if (stem < length) words.emplace_back(word.substr(stem));
      i += length;
      continue;
    }
    // A separate ending, as in text that is already tokenized.
    const auto alone = std::ranges::find_if(kEndings, [&](std::string_view e) {
      const size_t end = i + e.size();
      return text.compare(i, e.size(), e) == 0 && (i == 0 || text[i - 1] == ' ') &&
             (end == text.size() || !IsWordCharacter(text[end]));
    });
    size_t length = alone == kEndings.end() ? 1 : alone->size();
    const bool in_rows = text[i] == '.' || text[i] == '-';
    if (in_rows) length = std::min(text.find_first_not_of(text[i], i), text.size()) - i;
    // A row of points or hyphens of any length is one word.
    words.push_back(in_rows && length > 1 ? (text[i] == '.' ? "..." : "--")
                                          : text.substr(i, length));
    i += length;
  }
  return words;
}

}  // namespace planish::lab
