#include "lab/tasks/synthetic_sentences.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lab/base/format_integer.h"
#include "lab/base/random.h"

namespace planish::lab {

namespace {

struct Adjective {
  const char* word;
  int opinion;
};

constexpr Adjective kAdjectives[] = {
    {"awful", -2}, {"dreadful", -2}, {"horrible", -2}, {"terrible", -2}, {"clumsy", -1},
    {"dull", -1},  {"shallow", -1},  {"silly", -1},    {"tedious", -1},  {"weak", -1},
    {"clever", 1}, {"funny", 1},     {"good", 1},      {"lively", 1},    {"moving", 1},
    {"pretty", 1}, {"brilliant", 2}, {"gorgeous", 2},  {"masterful", 2}, {"superb", 2}};
constexpr const char* kSubjects[] = {"acting", "camera", "cast",  "ending", "film",  "humour",
                                     "music",  "plot",   "score", "script", "story", "hero"};
constexpr const char* kVerbs[] = {"is", "was", "seems", "remains"};
constexpr const char* kKinds[] = {"french", "new", "old", "short", "silent", "quiet"};
constexpr const char* kFacts[] = {"opens in june",   "runs for two hours", "begins at sea",
                                  "has a dog in it", "comes from a book",  "plays in rome"};

class Critic {
 public:
  explicit Critic(uint64_t seed) : random_(seed) {}

  // Returns a sentence and its opinion.
  std::pair<std::string, int> Sentence() {
    auto [text, opinion] = Clause();
    switch (Choose(4)) {
      case 0: {
        const auto [more, other] = Clause();
        text += " , but " + more;
        opinion = other;
        break;
      }
      case 1: {
        const auto [more, other] = Clause();
        text += " and " + more;
        opinion = std::clamp(opinion + other, -2, 2);
        break;
      }
      default:
        break;
    }
    return {text + " .", opinion};
  }

 private:
  size_t Choose(size_t n) { return lab::Choose(random_, n); }

  template <class T, size_t N>
  const T& OneOf(const T (&list)[N]) {
    return list[Choose(N)];
  }

  std::pair<std::string, int> Clause() {
    std::string text = "the ";
    if (Choose(3) == 0) text += std::string(OneOf(kKinds)) + " ";
    text += std::string(OneOf(kSubjects)) + " ";
    if (Choose(6) == 0) return {text + OneOf(kFacts), 0};
    text += OneOf(kVerbs);
    const bool negated = Choose(4) == 0;
    if (negated) text += " not";
    const size_t degree = Choose(4);
    const Adjective adjective = OneOf(kAdjectives);
    const int sign = adjective.opinion > 0 ? 1 : -1;
    int opinion = adjective.opinion;
    if (degree == 0) {
      text += " very";
      opinion = 2 * sign;
    } else if (degree == 1) {
      text += " slightly";
      opinion = sign;
    }
    // "not superb" and "not very good" are both simply bad.
    if (negated) opinion = -sign;
    return {text + " " + adjective.word, opinion};
  }

  std::mt19937_64 random_;
};

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace

SentenceSets MakeSentences(const SyntheticSentences& options) {
  Critic critic(options.seed);
  Sha256 sha;
  SentenceSets sets;
  for (auto [sentences, count] :
       {std::pair(&sets.train, options.train), std::pair(&sets.valid, options.valid),
        std::pair(&sets.test, options.test)}) {
    while (sentences->size() < count) {
      const auto [text, opinion] = critic.Sentence();
      if (options.classes == 2 && opinion == 0) continue;
      const int64_t label = options.classes == 2 ? opinion > 0 : opinion + 2;
      sentences->Add(Split(text), label);
      const std::string line = fmt::format("{} {}\n", label, text);
      sha.Update({reinterpret_cast<const uint8_t*>(line.data()), line.size()});
    }
  }
  sets.name = "made opinions";
  sets.source = "embedded";
  sets.description = fmt::format(
      "{} opinions of films, {} classes, made by planish from a small random grammar, seed {}",
      FormatInteger(options.train + options.valid + options.test), options.classes, options.seed);
  sets.sha256 = sha.Hex();
  return sets;
}

}  // namespace planish::lab
