#include "lab/tasks/parser/synthetic_trees.h"

#include <fmt/format.h>

#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "lab/base/format_integer.h"
#include "lab/base/random.h"
#include "lab/data/sha256.h"
#include "lab/error.h"

namespace planish::lab {

namespace {

constexpr const char* kDeterminers[] = {"the", "a", "every", "some", "this"};
constexpr const char* kOwners[] = {"my", "your", "his", "her", "their"};
constexpr const char* kAdjectives[] = {"old",   "small", "green", "quiet", "strange",
                                       "happy", "heavy", "young", "warm",  "bright"};
// The second half are places: "a bridge near the river".
constexpr const char* kNouns[] = {"baker",  "child",  "doctor", "farmer", "horse",
                                  "king",   "nurse",  "pilot",  "sailor", "singer",
                                  "bridge", "castle", "field",  "garden", "house",
                                  "market", "mill",   "school", "tower",  "village"};
constexpr const char* kNames[] = {"Anna", "Bela", "Carl", "Dora", "Emil", "Frida"};
constexpr const char* kPronouns[] = {"he", "she", "it", "they", "we"};
constexpr const char* kAlone[] = {"sings", "sleeps", "laughs", "waits", "arrives", "works"};
constexpr const char* kWithObject[] = {"sees", "loves", "follows", "draws", "finds", "paints"};
constexpr const char* kAuxiliaries[] = {"will", "can", "must", "may"};
constexpr const char* kAdverbs[] = {"today", "often", "again", "slowly", "here"};
constexpr const char* kPrepositions[] = {"near", "in", "behind", "beside"};

class Writer {
 public:
  explicit Writer(uint64_t seed) : random_(seed) {}

  std::string Sentence() {
    words_.clear();
    if (Choose(11) == 0) {
      Extraposed();
    } else {
      const int verb = Clause(/*depth=*/2);
      Attach(verb, 0, "root");
      if (Choose(5) == 0) {
        const int comma = Add(",", "PUNCT", ","), but = Add("but", "CCONJ", "CC");
        const int second = Clause(/*depth=*/1);
        Attach(comma, second, "punct");
        Attach(but, second, "cc");
        Attach(second, verb, "conj");
      }
      Attach(Add(".", "PUNCT", "."), verb, "punct");
    }
    std::string text;
    for (size_t i = 0; i < words_.size(); ++i) {
      const TreeWord& word = words_[i];
      text += fmt::format("{}\t{}\t_\t{}\t{}\t_\t{}\t{}\t_\t_\n", i + 1, word.form, word.upos,
                          word.xpos, word.head, word.relation);
    }
    return text + "\n";
  }

 private:
  // Words are numbered from 1.
  int Add(const char* form, const char* upos, const char* xpos) {
    words_.push_back({form, upos, xpos, 0, {}});
    return static_cast<int>(words_.size());
  }
  void Attach(int word, int head, const char* relation) {
    TreeWord& w = words_[static_cast<size_t>(word - 1)];
    w.head = head;
    w.relation = relation;
  }

  int Choose(size_t n) { return static_cast<int>(lab::Choose(random_, n)); }
  template <size_t N>
  const char* OneOf(const char* const (&list)[N]) {
    return list[Choose(N)];
  }

  // Adds a determiner or owner, adjectives and a noun. Returns the noun.
  int Noun(bool* is_place = nullptr) {
    std::vector<std::pair<int, const char*>> before;
    if (Choose(4) == 0) {
      before.emplace_back(Add(OneOf(kOwners), "PRON", "PRP$"), "nmod:poss");
    } else {
      before.emplace_back(Add(OneOf(kDeterminers), "DET", "DT"), "det");
    }
    while (Choose(3) == 0) before.emplace_back(Add(OneOf(kAdjectives), "ADJ", "JJ"), "amod");
    const int which = Choose(std::size(kNouns));
    const int noun = Add(kNouns[which], "NOUN", "NN");
    for (const auto& [word, relation] : before) Attach(word, noun, relation);
    if (is_place) *is_place = which >= static_cast<int>(std::size(kNouns)) / 2;
    return noun;
  }

  int RelativeClause(int depth) {
    const int that = Add("that", "PRON", "WDT");
    const int verb = Predicate(depth);
    Attach(that, verb, "nsubj");
    return verb;
  }

  // Adds a subject or object with its attributes.
  int NounPhrase(int depth) {
    switch (Choose(4)) {
      case 0:
        return Add(OneOf(kNames), "PROPN", "NNP");
      case 1:
        return Add(OneOf(kPronouns), "PRON", "PRP");
      default: {
        const int noun = Noun();
        if (depth > 0 && Choose(4) == 0) {
          const int of = Add("of", "ADP", "IN"), owner = NounPhrase(depth - 1);
          Attach(of, owner, "case");
          Attach(owner, noun, "nmod");
        }
        if (depth > 0 && Choose(5) == 0) {
          Attach(RelativeClause(depth - 1), noun, "acl:relcl");
        } else if (depth > 0 && Choose(5) == 0) {
          const int with = Add("and", "CCONJ", "CC"), other = NounPhrase(depth - 1);
          Attach(with, other, "cc");
          Attach(other, noun, "conj");
        }
        return noun;
      }
    }
  }

  // Adds a verb with everything except its subject. Returns the verb.
  int Predicate(int depth) {
    const int auxiliary = Choose(4) == 0 ? Add(OneOf(kAuxiliaries), "AUX", "MD") : 0;
    const int adverb = Choose(6) == 0 ? Add(OneOf(kAdverbs), "ADV", "RB") : 0;
    const bool alone = Choose(2) == 0;
    const int verb = Add(alone ? OneOf(kAlone) : OneOf(kWithObject), "VERB", "VBZ");
    if (auxiliary != 0) Attach(auxiliary, verb, "aux");
    if (adverb != 0) Attach(adverb, verb, "advmod");
    int object = 0;
    bool object_is_place = false;
    if (!alone) {
      object = Choose(2) == 0 ? Noun(&object_is_place) : NounPhrase(depth - 1);
      Attach(object, verb, "obj");
    }
    if (Choose(3) == 0) {
      const int preposition = Add(OneOf(kPrepositions), "ADP", "IN"), place = Noun();
      Attach(preposition, place, "case");
      Attach(place, object_is_place ? object : verb, object_is_place ? "nmod" : "obl");
    }
    return verb;
  }

  int Clause(int depth) {
    const int subject = NounPhrase(depth);
    const int verb = Predicate(depth);
    Attach(subject, verb, "nsubj");
    return verb;
  }

  // "A baker arrives today that sings.": the relative clause's arc crosses that of the verb.
  void Extraposed() {
    const int subject = Noun();
    const int verb = Add(OneOf(kAlone), "VERB", "VBZ");
    Attach(verb, 0, "root");
    Attach(subject, verb, "nsubj");
    if (Choose(2) == 0) Attach(Add(OneOf(kAdverbs), "ADV", "RB"), verb, "advmod");
    Attach(RelativeClause(0), subject, "acl:relcl");
    Attach(Add(".", "PUNCT", "."), verb, "punct");
  }

  std::mt19937_64 random_;
  std::vector<TreeWord> words_;
};

}  // namespace

std::string MakeConllu(int64_t count, uint64_t seed) {
  if (count < 1 || count > kMaxSyntheticTrees) {
    throw UsageError(fmt::format("[MakeConllu] count must be from 1 to {}, got {}",
                                 FormatInteger(kMaxSyntheticTrees), count));
  }
  Writer writer(seed);
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += writer.Sentence();
  return text;
}

TreebankSet MakeTreebanks(int64_t train, int64_t held_out) {
  TreebankSet set;
  Sha256 sha;
  const auto make = [&](int64_t count, uint64_t seed) {
    const std::string text = MakeConllu(count, seed);
    sha.Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    return ParseConllu(text, "synthetic trees");
  };
  set.train = make(train, 1);
  set.valid = make(held_out, 2);
  set.test = make(held_out, 3);
  set.name = "synthetic trees";
  set.source = "embedded";
  set.description = "generated by planish from a random grammar";
  set.sha256 = sha.Hex();
  return set;
}

}  // namespace planish::lab
