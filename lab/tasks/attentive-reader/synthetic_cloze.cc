#include "lab/tasks/attentive-reader/synthetic_cloze.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/base/format_integer.h"
#include "lab/base/random.h"

namespace planish::lab {

namespace {

constexpr const char* kThings[] = {"lamp",  "map",    "key",    "clock",  "boat",   "letter",
                                   "drum",  "ladder", "basket", "mirror", "kettle", "violin",
                                   "apple", "rope",   "candle", "carpet", "helmet", "ring"};
constexpr const char* kPlaces[] = {"garden", "cellar", "tower", "kitchen", "harbour", "stable"};
constexpr const char* kTimes[] = {"then", "later", "in the morning", "after dinner", "at night"};

// Sentence and questions about it. A and B are people, T is the thing, P a place.
struct Template {
  const char* sentence;
  const char* about_a;  // leaves out A
  const char* about_b;  // leaves out B; null without B
};
constexpr Template kTemplates[] = {
    {"A gave the T to B .", "the T was a present from @placeholder .",
     "now @placeholder has the T ."},
    {"B got the T from A .", "the T was a present from @placeholder .",
     "now @placeholder has the T ."},
    {"the T of A was taken away by B .", "@placeholder has lost the T .",
     "@placeholder is the thief of the T ."},
    {"B stole the T of A .", "@placeholder has lost the T .",
     "@placeholder is the thief of the T ."},
    {"A put the T in the P .", "@placeholder knows where the T is .", nullptr},
    {"in the P the T was hidden by A .", "@placeholder knows where the T is .", nullptr},
};

class Teller {
 public:
  explicit Teller(const SyntheticCloze& options)
      : random_(static_cast<uint64_t>(options.seed)),
        entities_(static_cast<size_t>(options.entities)) {}

  ClozeQuestion Question(ClozeWords* words, size_t number) {
    ClozeQuestion q;
    std::set<ClozeToken> told;
    const size_t count = 3 + Choose(2);
    do {
      q = Story(Different(count, entities_), words);
      told.clear();
      std::ranges::copy_if(q.passage, std::inserter(told, told.end()), IsEntity);
    } while (told.size() < count);
    q.source = fmt::format("made story {}", number);
    return q;
  }

 private:
  ClozeQuestion Story(const std::vector<size_t>& people, ClozeWords* words) {
    constexpr size_t kSentences = 4;
    const std::vector<size_t> things = Different(kSentences, std::size(kThings));
    const size_t asked = Choose(kSentences);
    ClozeQuestion q;
    for (size_t i = 0; i < kSentences; ++i) {
      const std::vector<size_t> roles = Different(2, people.size());
      const auto a = static_cast<int32_t>(people[roles[0]]);
      const auto b = static_cast<int32_t>(people[roles[1]]);
      const Template& chosen = kTemplates[Choose(std::size(kTemplates))];
      const char* place = kPlaces[Choose(std::size(kPlaces))];
      const auto say = [&](const char* form, std::vector<ClozeToken>* tokens) {
        Say(form, a, b, kThings[things[i]], place, words, tokens);
      };
      if (i > 0 && Choose(2) == 0) say(kTimes[Choose(std::size(kTimes))], &q.passage);
      say(chosen.sentence, &q.passage);
      if (i != asked) continue;
      const bool second = chosen.about_b && Choose(2) == 0;
      q.answer = second ? b : a;
      say(second ? chosen.about_b : chosen.about_a, &q.question);
    }
    return q;
  }

  size_t Choose(size_t n) { return lab::Choose(random_, n); }

  // Returns `count` distinct numbers below `n` in random order.
  std::vector<size_t> Different(size_t count, size_t n) {
    std::vector<size_t> all(n);
    std::iota(all.begin(), all.end(), size_t{0});
    for (size_t i = 0; i < count; ++i) std::swap(all[i], all[i + Choose(n - i)]);
    all.resize(count);
    return all;
  }

  static void Say(std::string_view form, int32_t a, int32_t b, const char* thing, const char* place,
                  ClozeWords* words, std::vector<ClozeToken>* tokens) {
    for (size_t begin = 0; begin < form.size();) {
      const size_t end = std::min(form.find(' ', begin), form.size());
      const std::string_view word = form.substr(begin, end - begin);
      tokens->push_back(word == "A"   ? EntityToken(a)
                        : word == "B" ? EntityToken(b)
                        : word == "T" ? words->Token(thing)
                        : word == "P" ? words->Token(place)
                                      : words->Token(word));
      begin = end + 1;
    }
  }

  std::mt19937_64 random_;
  size_t entities_;
};

}  // namespace

ClozeSets MakeCloze(const SyntheticCloze& options) {
  ClozeSets sets;
  Teller teller(options);
  size_t number = 0;
  for (const auto& [set, count] : {std::pair(&sets.valid, options.held_out),
                                   {&sets.test, options.held_out},
                                   {&sets.train, options.train}}) {
    for (int64_t i = 0; i < count; ++i) set->push_back(teller.Question(&sets.words, ++number));
  }
  sets.name = "synthetic questions";
  sets.source = "embedded";
  sets.description = fmt::format(
      "{} training, {} validation and {} test questions, generated by planish from a small random "
      "grammar, seed {}",
      FormatInteger(options.train), FormatInteger(options.held_out),
      FormatInteger(options.held_out), options.seed);
  sets.sha256 = HashQuestions(sets);
  return sets;
}

}  // namespace planish::lab
