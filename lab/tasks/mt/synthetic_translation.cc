#include "lab/tasks/mt/synthetic_translation.h"

#include <fmt/format.h>

#include <random>
#include <unordered_set>

#include "lab/error.h"

namespace planish::lab {

namespace {

constexpr int64_t kMaxCount = 100'000;

enum Gender { kMasculine, kFeminine, kNeuter };
enum Case { kNominative, kAccusative };

struct Noun {
  const char *english, *english_plural, *german, *german_plural;
  Gender gender;
};
struct Verb {
  const char *third, *base, *participle;  // English: sees, see, seen
  const char *german_third, *german_base, *german_participle;
};
struct Words {
  const char *english, *german;
};

constexpr Noun kNouns[] = {
    {"dog", "dogs", "Hund", "Hunde", kMasculine},
    {"cat", "cats", "Katze", "Katzen", kFeminine},
    {"child", "children", "Kind", "Kinder", kNeuter},
    {"man", "men", "Mann", "Männer", kMasculine},
    {"woman", "women", "Frau", "Frauen", kFeminine},
    {"horse", "horses", "Pferd", "Pferde", kNeuter},
    {"teacher", "teachers", "Lehrer", "Lehrer", kMasculine},
    {"mouse", "mice", "Maus", "Mäuse", kFeminine},
    {"girl", "girls", "Mädchen", "Mädchen", kNeuter},
    {"king", "kings", "König", "Könige", kMasculine},
    {"queen", "queens", "Königin", "Königinnen", kFeminine},
    {"lamb", "lambs", "Lamm", "Lämmer", kNeuter},
    {"bird", "birds", "Vogel", "Vögel", kMasculine},
    {"goose", "geese", "Gans", "Gänse", kFeminine},
    {"book", "books", "Buch", "Bücher", kNeuter},
    {"friend", "friends", "Freund", "Freunde", kMasculine},
};
constexpr Verb kWithObject[] = {
    {"sees", "see", "seen", "sieht", "sehen", "gesehen"},
    {"looks for", "look for", "looked for", "sucht", "suchen", "gesucht"},
    {"finds", "find", "found", "findet", "finden", "gefunden"},
    {"buys", "buy", "bought", "kauft", "kaufen", "gekauft"},
    {"draws", "draw", "drawn", "zeichnet", "zeichnen", "gezeichnet"},
    {"carries", "carry", "carried", "trägt", "tragen", "getragen"},
    {"waits for", "wait for", "waited for", "erwartet", "erwarten", "erwartet"},
    {"forgets", "forget", "forgotten", "vergisst", "vergessen", "vergessen"},
};
constexpr Verb kAlone[] = {
    {"sleeps", "sleep", "slept", "schläft", "schlafen", "geschlafen"},
    {"laughs", "laugh", "laughed", "lacht", "lachen", "gelacht"},
    {"works", "work", "worked", "arbeitet", "arbeiten", "gearbeitet"},
    {"sings", "sing", "sung", "singt", "singen", "gesungen"},
};
// The stem, to which German adds an ending.
constexpr Words kAdjectives[] = {{"small", "klein"}, {"big", "groß"},      {"old", "alt"},
                                 {"young", "jung"},  {"tired", "müd"},     {"clever", "klug"},
                                 {"quiet", "still"}, {"hungry", "hungrig"}};
constexpr Words kTimes[] = {
    {"today", "heute"}, {"in the morning", "am Morgen"}, {"often", "oft"}, {"now", "jetzt"}};
constexpr Words kPlaces[] = {{"in the garden", "im Garten"},
                             {"at home", "zu Hause"},
                             {"behind the house", "hinter dem Haus"},
                             {"in the forest", "im Wald"}};
constexpr Words kConjunctions[] = {{"because", "weil"}, {"when", "wenn"}, {"although", "obwohl"}};

constexpr const char* kDefinite[2][3] = {{"der", "die", "das"}, {"den", "die", "das"}};
constexpr const char* kIndefinite[2][3] = {{"ein", "eine", "ein"}, {"einen", "eine", "ein"}};
// Endings of adjectives after each of them.
constexpr const char* kWeak[2][3] = {{"e", "e", "e"}, {"en", "e", "e"}};
constexpr const char* kMixed[2][3] = {{"er", "e", "es"}, {"en", "e", "es"}};

class Translator {
 public:
  explicit Translator(int64_t seed) : random_(static_cast<uint64_t>(seed)) {}

  SentencePair Sentence() {
    Text text;
    const bool time = Choose(3) == 0;
    if (time) {
      const Words& when = OneOf(kTimes);
      text.english = fmt::format("{}, ", when.english);
      text.german = fmt::format("{} ", when.german);
    }
    const Text main = Clause(time ? Order::kInverted : Order::kMain);
    text.english += main.english;
    text.german += main.german;
    if (Choose(4) == 0) {
      const Words& word = OneOf(kConjunctions);
      const Text clause = Clause(Order::kSubordinate);
      text.english += fmt::format(" {} {}", word.english, clause.english);
      text.german += fmt::format(", {} {}", word.german, clause.german);
    }
    return {Capitalized(text.english) + ".", Capitalized(text.german) + "."};
  }

 private:
  struct Text {
    std::string english, german;
  };
  enum class Order { kMain, kInverted, kSubordinate };

  // The bias of the remainder is negligible for a few words.
  size_t Choose(size_t n) { return random_() % n; }

  template <class T, size_t N>
  const T& OneOf(const T (&list)[N]) {
    return list[Choose(N)];
  }

  // Every sentence begins with an English letter or a German one without an umlaut.
  static std::string Capitalized(std::string text) {
    if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
  }

  // Returns a noun with its article and perhaps an adjective; subjects perhaps with a clause.
  Text NounPhrase(Case which, bool plural, bool clause) {
    const Noun& noun = OneOf(kNouns);
    const bool definite = Choose(2) == 0;
    std::string adjective, stem;
    if (Choose(3) == 0) {
      const Words& word = OneOf(kAdjectives);
      adjective = word.english;
      stem = word.german;
    }
    std::string english, german, ending;
    if (plural) {
      if (definite) {
        english = "the ";
        german = "die ";
      }
      ending = definite ? "en" : "e";
    } else if (definite) {
      english = "the ";
      german = fmt::format("{} ", kDefinite[which][noun.gender]);
      ending = kWeak[which][noun.gender];
    } else {
      english = adjective == "old" ? "an " : "a ";
      german = fmt::format("{} ", kIndefinite[which][noun.gender]);
      ending = kMixed[which][noun.gender];
    }
    if (!adjective.empty()) {
      english += adjective + " ";
      german += stem + ending + " ";
    }
    english += plural ? noun.english_plural : noun.english;
    german += plural ? noun.german_plural : noun.german;
    if (clause) {
      const Text object = NounPhrase(kAccusative, Choose(2) == 0, false);
      const Verb& verb = OneOf(kWithObject);
      english += fmt::format(" that {} {}", plural ? verb.base : verb.third, object.english);
      german += fmt::format(", {} {} {},", plural ? "die" : kDefinite[kNominative][noun.gender],
                            object.german, plural ? verb.german_base : verb.german_third);
    }
    return {english, german};
  }

  Text Clause(Order order) {
    const bool plural = Choose(3) == 0;
    const Text subject = NounPhrase(kNominative, plural, Choose(6) == 0);
    const bool with_object = Choose(4) != 0;
    const Verb& verb = with_object ? OneOf(kWithObject) : OneOf(kAlone);
    // The words between German's finite verb and the end of its clause.
    std::string middle, english_tail;
    if (with_object) {
      const Text object = NounPhrase(kAccusative, Choose(3) == 0, false);
      english_tail = " " + object.english;
      middle = " " + object.german;
    }
    const bool place = Choose(4) == 0;
    const Words& where = OneOf(kPlaces);
    if (place) {
      english_tail += fmt::format(" {}", where.english);
      middle += fmt::format(" {}", where.german);
    }
    std::string english_verb, finite, last;
    switch (Choose(4)) {
      case 0:  // perfect
        english_verb = fmt::format("{} {}", plural ? "have" : "has", verb.participle);
        finite = plural ? "haben" : "hat";
        last = verb.german_participle;
        break;
      case 1:  // with a modal verb
        english_verb = fmt::format("must {}", verb.base);
        finite = plural ? "müssen" : "muss";
        last = verb.german_base;
        break;
      case 2:  // negated
        english_verb = fmt::format("{} not {}", plural ? "do" : "does", verb.base);
        finite = plural ? verb.german_base : verb.german_third;
        // Before a place, after an object.
        if (place) {
          const std::string where_last = fmt::format(" {}", where.german);
          middle.insert(middle.size() - where_last.size(), " nicht");
        } else {
          middle += " nicht";
        }
        break;
      default:
        english_verb = plural ? verb.base : verb.third;
        finite = plural ? verb.german_base : verb.german_third;
    }
    if (!last.empty()) last = " " + last;
    Text text;
    text.english = fmt::format("{} {}{}", subject.english, english_verb, english_tail);
    switch (order) {
      case Order::kMain:
        text.german = fmt::format("{} {}{}{}", subject.german, finite, middle, last);
        break;
      case Order::kInverted:
        text.german = fmt::format("{} {}{}{}", finite, subject.german, middle, last);
        break;
      case Order::kSubordinate:
        text.german = fmt::format("{}{}{} {}", subject.german, middle, last, finite);
        break;
    }
    // An inner clause can end at the end of the sentence or of its own clause.
    if (text.german.ends_with(",")) text.german.pop_back();
    return text;
  }

  std::mt19937_64 random_;
};

}  // namespace

std::vector<SentencePair> MakeTranslations(int64_t count, int64_t seed) {
  if (count < 1 || count > kMaxCount) {
    throw UsageError(
        fmt::format("[MakeTranslations] count must be from 1 to {}, got {}", kMaxCount, count));
  }
  Translator translator(seed);
  std::unordered_set<std::string> seen;
  std::vector<SentencePair> pairs;
  while (std::ssize(pairs) < count) {
    SentencePair pair = translator.Sentence();
    if (seen.insert(pair.source).second) pairs.push_back(std::move(pair));
  }
  return pairs;
}

}  // namespace planish::lab
