#include "lab/tasks/mt/bleu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <stdexcept>

namespace planish::lab {

namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Returns true for ASCII punctuation, except . , - ' which numbers and words can contain.
bool IsDisjoint(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

bool IsPoint(char c) { return c == '.' || c == ','; }

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// Returns the length of the blank at `i`, or 0 if there is none: Unicode's white space, and the
// separators U+001C to U+001F.
size_t BlankLength(std::string_view text, size_t i) {
  const auto c = static_cast<unsigned char>(text[i]);
  if (c == ' ' || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f)) return 1;
  const std::string_view two = text.substr(i, 2), three = text.substr(i, 3);
  if (two == "\u0085" || two == "\u00a0") return 2;
  if (three == "\u1680" || three == "\u2028" || three == "\u2029" || three == "\u202f" ||
      three == "\u205f" || three == "\u3000") {
    return 3;
  }
  // U+2000 to U+200A
  if (three.size() == 3 && three.starts_with("\xe2\x80") &&
      static_cast<unsigned char>(three[2]) <= 0x8a) {
    return 3;
  }
  return 0;
}

std::vector<std::string> SplitAtBlanks(std::string_view text) {
  std::vector<std::string> words;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size();) {
    const size_t blank = i < text.size() ? BlankLength(text, i) : 1;
    if (blank > 0 && i > begin) words.emplace_back(text.substr(begin, i - begin));
    i += std::max<size_t>(blank, 1);
    if (blank > 0) begin = i;
  }
  return words;
}

// Puts blanks around the second of two neighbours, or the first, if `matches` accepts both. Like a
// regular expression, it does not match the same characters again.
template <class Matches>
std::string Separate(const std::string& text, Matches matches, std::string_view before_first,
                     std::string_view between, std::string_view after) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      out += before_first;
      out += text[i];
      out += between;
      out += text[i + 1];
      out += after;
      i += 2;
    } else {
      out += text[i++];
    }
  }
  return out;
}

// n-grams of a sentence, joined by blanks, which no token contains, with their counts.
using Counts = std::map<std::string, int64_t>;

std::array<Counts, kBleuOrders> CountGrams(const std::vector<std::string>& tokens) {
  std::array<Counts, kBleuOrders> counts;
  for (size_t begin = 0; begin < tokens.size(); ++begin) {
    std::string gram;
    for (size_t n = 0; n < kBleuOrders && begin + n < tokens.size(); ++n) {
      if (n > 0) gram += ' ';
      gram += tokens[begin + n];
      ++counts[n][gram];
    }
  }
  return counts;
}

}  // namespace

std::vector<std::string> Tokenize13a(std::string_view line) {
  std::string text(line);
  while (!text.empty()) {  // trailing blanks go first: a dash before them ends the line
    size_t end = text.size();
    for (size_t length = 1; length <= 3 && length <= text.size(); ++length) {
      if (BlankLength(text, text.size() - length) == length) end = text.size() - length;
    }
    if (end == text.size()) break;
    text.resize(end);
  }
  ReplaceAll(text, "<skipped>", "");
  ReplaceAll(text, "-\n", "");
  ReplaceAll(text, "\n", " ");
  ReplaceAll(text, "&quot;", "\"");
  ReplaceAll(text, "&amp;", "&");
  ReplaceAll(text, "&lt;", "<");
  ReplaceAll(text, "&gt;", ">");
  std::string separated = " ";
  for (const char c : text + " ") {
    if (IsDisjoint(c)) {
      separated += ' ';
      separated += c;
      separated += ' ';
    } else {
      separated += c;
    }
  }
  // Bytes suffice: those of multibyte characters are not ASCII.
  separated =
      Separate(separated, [](char a, char b) { return !IsDigit(a) && IsPoint(b); }, "", " ", " ");
  separated =
      Separate(separated, [](char a, char b) { return IsPoint(a) && !IsDigit(b); }, " ", " ", "");
  separated =
      Separate(separated, [](char a, char b) { return IsDigit(a) && b == '-'; }, "", " ", " ");
  return SplitAtBlanks(separated);
}

BleuCounts CountsOf(std::string_view hypothesis_line, std::string_view reference_line) {
  const std::vector<std::string> hypothesis = Tokenize13a(hypothesis_line);
  const std::vector<std::string> reference = Tokenize13a(reference_line);
  BleuCounts counts;
  counts.reference_tokens = std::ssize(reference);
  const auto ours = CountGrams(hypothesis), theirs = CountGrams(reference);
  for (size_t n = 0; n < kBleuOrders; ++n) {
    for (const auto& [gram, count] : ours[n]) {
      counts.total[n] += count;
      const auto it = theirs[n].find(gram);
      if (it != theirs[n].end()) counts.correct[n] += std::min(count, it->second);
    }
  }
  return counts;
}

std::vector<BleuCounts> CountsOf(std::span<const std::string> hypotheses,
                                 std::span<const std::string> references) {
  if (hypotheses.size() != references.size()) {
    throw std::invalid_argument(fmt::format(
        "[CorpusBleu] there must be one hypothesis for each of the {} references, got {}",
        references.size(), hypotheses.size()));
  }
  std::vector<BleuCounts> sentences;
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    sentences.push_back(CountsOf(hypotheses[i], references[i]));
  }
  return sentences;
}

BleuCounts SumOf(std::span<const BleuCounts> sentences) {
  BleuCounts sum;
  for (const BleuCounts& sentence : sentences) {
    sum.reference_tokens += sentence.reference_tokens;
    for (size_t n = 0; n < kBleuOrders; ++n) {
      sum.total[n] += sentence.total[n];
      sum.correct[n] += sentence.correct[n];
    }
  }
  return sum;
}

Bleu CorpusBleu(std::span<const std::string> hypotheses, std::span<const std::string> references) {
  return BleuOf(SumOf(CountsOf(hypotheses, references)));
}

}  // namespace planish::lab
