#include "lab/data/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <system_error>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/data/sha256.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

std::string HashOf(std::string_view text) {
  Sha256 sha;
  sha.Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return sha.Hex();
}

struct Forms {
  const char* singular;
  const char* plural;
};

// Words of the plays. Lists that can follow the same words are disjoint, and no noun or verb has
// one form for both numbers. So a play has one derivation, and its choices have exactly the bits of
// its probability.
constexpr const char* kNames[] = {"Anna", "Bela",  "Carl",   "Dora",
                                  "Emil", "Frida", "Gustav", "Hanna"};
constexpr const char* kPlaces[] = {"the mill",  "the harbour", "the forest", "the market",
                                   "the tower", "the garden",  "the bridge", "the kitchen"};
constexpr const char* kThings[] = {"ring", "lamp",         "letter",   "silver key",
                                   "map",  "broken clock", "red coat", "violin"};
constexpr const char* kAdjectives[] = {"big",   "clever", "dark",    "gentle", "hungry", "little",
                                       "merry", "quiet",  "strange", "tired",  "wild",   "young"};
constexpr Forms kNouns[] = {
    {"baker", "bakers"},   {"bird", "birds"},    {"cat", "cats"},     {"child", "children"},
    {"dog", "dogs"},       {"fox", "foxes"},     {"ghost", "ghosts"}, {"horse", "horses"},
    {"king", "kings"},     {"lady", "ladies"},   {"man", "men"},      {"mouse", "mice"},
    {"sailor", "sailors"}, {"thief", "thieves"}, {"widow", "widows"}, {"wolf", "wolves"}};
constexpr Forms kAlone[] = {{"sings", "sing"},   {"sleeps", "sleep"}, {"runs", "run"},
                            {"laughs", "laugh"}, {"waits", "wait"},   {"weeps", "weep"},
                            {"dances", "dance"}, {"hides", "hide"}};
constexpr Forms kWithObject[] = {{"sees", "see"},      {"fears", "fear"},   {"follows", "follow"},
                                 {"loves", "love"},    {"knows", "know"},   {"catches", "catch"},
                                 {"carries", "carry"}, {"teaches", "teach"}};
constexpr const char* kNumbers[] = {"one", "two", "three", "four", "five", "six"};

// Generator of scenes that counts the bits of its choices, all between equally likely options.
class Playwright {
 public:
  explicit Playwright(int64_t seed) : state_(static_cast<uint64_t>(seed)) {}

  const std::string& text() const { return text_; }
  double bits() const { return bits_; }

  void Scene() {
    const int first = Choose(std::size(kNames));
    const int second = (first + 1 + Choose(std::size(kNames) - 1)) % std::size(kNames);
    const std::string thing = OneOf(kThings);
    const std::string cast =
        fmt::format("{} and {} with the {}.\n", kNames[first], kNames[second], thing);
    text_ += fmt::format("Scene {}: {}.\nEnter {}", ++scene_, OneOf(kPlaces), cast);
    const int speeches = 3 + Choose(6);
    for (int i = 0; i < speeches; ++i) {
      const char* speaker = kNames[i % 2 == 0 ? first : second];
      const char* listener = kNames[i % 2 == 0 ? second : first];
      text_ += fmt::format("{}:", speaker);
      const int sentences = 1 + Choose(3);
      for (int s = 0; s < sentences; ++s) text_ += " " + Sentence(listener, thing);
      text_ += "\n";
    }
    text_ += "Exeunt " + cast + "\n";
  }

 private:
  // SplitMix64 (Steele, Lea & Flood 2014).
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  int Choose(size_t n) {
    bits_ += std::log2(static_cast<double>(n));
    return static_cast<int>(((Next() >> 32) * n) >> 32);
  }

  template <class T, size_t N>
  const T& OneOf(const T (&list)[N]) {
    return list[Choose(N)];
  }

  static const char* Form(const Forms& forms, bool plural) {
    return plural ? forms.plural : forms.singular;
  }

  static std::string Capitalized(std::string text) {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
  }

  // Returns a noun with its attributes. `depth` limits nested clauses.
  std::string NounPhrase(bool plural, int depth) {
    static constexpr const char* kOne[] = {"the", "a", "every"};
    static constexpr const char* kMany[] = {"the", "some", "all"};
    std::string text = plural ? OneOf(kMany) : OneOf(kOne);
    if (Choose(2) == 0) text += fmt::format(" {}", OneOf(kAdjectives));
    text += fmt::format(" {}", Form(OneOf(kNouns), plural));
    if (depth > 0 && Choose(4) == 0) {
      text += " that ";
      if (Choose(2) == 0) {
        text += VerbPhrase(plural, depth - 1);
      } else {
        const bool others = Choose(2) == 0;
        text += NounPhrase(others, depth - 1);
        text += fmt::format(" {}", Form(OneOf(kWithObject), others));
      }
    }
    return text;
  }

  std::string VerbPhrase(bool plural, int depth) {
    if (Choose(2) == 0) return Form(OneOf(kAlone), plural);
    std::string text = fmt::format("{} ", Form(OneOf(kWithObject), plural));
    const bool object_plural = Choose(2) == 0;
    return text + NounPhrase(object_plural, depth);
  }

  std::string Clause() {
    const bool plural = Choose(2) == 0;
    std::string text = NounPhrase(plural, 2) + " ";
    return text + VerbPhrase(plural, 1);
  }

  // Returns one sentence, spoken to `listener`.
  std::string Sentence(const std::string& listener, const std::string& thing) {
    switch (Choose(6)) {
      case 0:
        return Capitalized(Clause()) + ".";
      case 1: {
        std::string text = Capitalized(Clause());
        text += Choose(2) == 0 ? ", and " : ", but ";
        return text + Clause() + ".";
      }
      case 2: {
        const bool plural = Choose(2) == 0;
        return fmt::format("Where {} {}?", plural ? "are" : "is", NounPhrase(plural, 1));
      }
      case 3: {
        const int count = 1 + Choose(std::size(kNumbers));
        std::string text = kNumbers[0];
        for (int i = 1; i < count; ++i) text += fmt::format(", {}", kNumbers[i]);
        return Capitalized(text) + fmt::format(" {}!", Form(OneOf(kNouns), count > 1));
      }
      case 4:
        return fmt::format("{}, {} the {}!", listener, Choose(2) == 0 ? "keep" : "give me", thing);
      default: {
        const char* who = OneOf(kNames);
        return fmt::format("{} said: \"{}.\"", who, Capitalized(Clause()));
      }
    }
  }

  uint64_t state_;
  std::string text_;
  double bits_ = 0;
  int scene_ = 0;
};

// Returns the text file of `path`, a file or a folder.
fs::path TextFile(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const fs::path& folder : {path, path / "tinyshakespeare"}) {
    if (const auto file = FindFile(folder, "input.txt")) return *file;
  }
  throw DataError(
      fmt::format("{} has no file input.txt or input.txt.gz, itself or in a folder tinyshakespeare",
                  Escaped(path.string())));
}

std::string NameOf(const fs::path& file) {
  const fs::path folder = fs::absolute(file).lexically_normal().parent_path().filename();
  const std::string name = file.filename().string();
  return (name == "input.txt" || name == "input.txt.gz") && !folder.empty() ? folder.string()
                                                                            : name;
}

}  // namespace

Text MakeText(int64_t length, int64_t seed) {
  if (length < 1 || length > kMaxSyntheticText) {
    throw UsageError(fmt::format("[MakeText] length must be from 1 to {}, got {}",
                                 FormatInteger(kMaxSyntheticText), length));
  }
  Playwright writer(seed);
  while (static_cast<int64_t>(writer.text().size()) < length) writer.Scene();
  Text text;
  text.characters = writer.text().substr(0, static_cast<size_t>(length));
  text.name = "synthetic plays";
  text.source = "embedded";
  text.entropy = writer.bits() / static_cast<double>(writer.text().size());
  text.description = fmt::format(
      "{} characters of plays generated by planish from a random grammar, seed {}, whose choices "
      "take {:.3f} bits a character: no model needs fewer on average",
      FormatInteger(length), seed, *text.entropy);
  text.sha256 = HashOf(text.characters);
  return text;
}

Text ReadText(const fs::path& path, int64_t max_characters) {
  const fs::path file = TextFile(path);
  FileContent content(file);
  Text text;
  const std::string start = ReadTextStart(file, content);
  if (const int64_t left = max_characters - std::ssize(start); left > 0)
    text.characters = content.Rest(left);
  text.characters.insert(0, start, 0, static_cast<size_t>(max_characters));
  if (const size_t zero = text.characters.find('\0'); zero != text.characters.npos) {
    FailToRead(file, fmt::format("byte {} is zero: it is not text, or not in UTF-8",
                                 FormatInteger(static_cast<int64_t>(zero))));
  }
  if (text.characters.empty()) FailToRead(file, "it is empty");
  text.name = NameOf(file);
  text.source = "files";
  text.description =
      fmt::format("{} characters read from {}",
                  FormatInteger(static_cast<int64_t>(text.characters.size())), file.string());
  text.sha256 = HashOf(text.characters);
  return text;
}

Text OpenText(const std::optional<fs::path>& path, int64_t max_characters) {
  return path ? ReadText(*path, max_characters)
              : MakeText(std::min(max_characters, kMaxSyntheticText));
}

Vocabulary::Vocabulary(std::string_view text) {
  std::array<bool, 256> seen = {};
  for (const char c : text) seen[static_cast<uint8_t>(c)] = true;
  index_.fill(-1);
  for (int byte = 0; byte < 256; ++byte) {
    if (!seen[static_cast<size_t>(byte)]) continue;
    index_[static_cast<size_t>(byte)] = static_cast<int16_t>(characters_.size());
    characters_ += static_cast<char>(byte);
  }
}

std::vector<uint8_t> Vocabulary::Encode(std::string_view text) const {
  std::vector<uint8_t> indices;
  indices.reserve(text.size());
  for (const char c : text) {
    const int16_t index = index_[static_cast<uint8_t>(c)];
    if (index < 0) {
      throw DataError(fmt::format("byte 0x{:02x} of the text is not in the vocabulary",
                                  static_cast<uint8_t>(c)));
    }
    indices.push_back(static_cast<uint8_t>(index));
  }
  return indices;
}

}  // namespace planish::lab
