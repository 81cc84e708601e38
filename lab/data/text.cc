#include "lab/data/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
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
  throw DataError(fmt::format(
      "{} has no file input.txt or input.txt.gz, itself or in a folder tinyshakespeare; "
      "a text with another name must be named itself",
      Escaped(path.string())));
}

std::string NameOf(const fs::path& file) {
  const fs::path folder = fs::absolute(file).lexically_normal().parent_path().filename();
  const std::string name = file.filename().string();
  return (name == "input.txt" || name == "input.txt.gz") && !folder.empty() ? folder.string()
                                                                            : name;
}

// Cuts a text to its first `count` characters. Returns their number.
int64_t CutToCharacters(std::string& text, int64_t count) {
  size_t end = 0;
  int64_t characters = 0;
  for (; characters < count && end < text.size(); ++characters) {
    end += FirstUnit(std::string_view(text).substr(end), TextUnit::kCharacter).size();
  }
  text.resize(end);
  return characters;
}

// Throws DataError naming the first line of a text that is not UTF-8.
void CheckCharacters(const fs::path& file, std::string_view text) {
  const std::optional<size_t> invalid = FindInvalidUtf8(text);
  if (!invalid) return;
  const std::string_view before = text.substr(0, *invalid);
  const int64_t line = std::ranges::count(before, '\n') + 1;
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  FailAtLine(file, line,
             fmt::format("byte 0x{:02x} at column {} is not UTF-8: convert the text first (iconv), "
                         "or read its bytes with --set unit=byte",
                         static_cast<uint8_t>(text[*invalid]), *invalid - line_begin + 1));
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

Text ReadText(const fs::path& path, int64_t max_characters, TextUnit unit) {
  constexpr int64_t kMaxCharacterBytes = 4;
  const fs::path file = TextFile(path);
  FileContent content(file);
  Text text;
  text.unit = unit;
  const int64_t max_bytes =
      unit == TextUnit::kByte ? max_characters : kMaxCharacterBytes * max_characters;
  const std::string start = ReadTextStart(file, content);
  if (const int64_t left = max_bytes - std::ssize(start); left > 0)
    text.characters = content.Rest(left);
  text.characters.insert(0, start, 0, static_cast<size_t>(max_bytes));
  int64_t count = std::ssize(text.characters);
  if (unit == TextUnit::kCharacter) {
    count = CutToCharacters(text.characters, max_characters);
    CheckCharacters(file, text.characters);
  }
  if (const size_t zero = text.characters.find('\0'); zero != text.characters.npos) {
    FailToRead(file, fmt::format("byte {} is zero: it is not text, or not in UTF-8",
                                 FormatInteger(static_cast<int64_t>(zero))));
  }
  if (text.characters.empty()) FailToRead(file, "it is empty");
  text.name = NameOf(file);
  text.source = "files";
  text.description = fmt::format("{} {} read from {}", FormatInteger(count),
                                 unit == TextUnit::kByte ? "bytes" : "characters", file.string());
  text.sha256 = HashOf(text.characters);
  return text;
}

Text OpenText(const std::optional<fs::path>& path, int64_t max_characters, TextUnit unit) {
  if (path) return ReadText(*path, max_characters, unit);
  Text text = MakeText(std::min(max_characters, kMaxSyntheticText));
  text.unit = unit;
  return text;
}

std::string_view FirstUnit(std::string_view text, TextUnit unit) {
  const size_t length = unit == TextUnit::kByte ? 1 : Utf8SequenceLength(text);
  return text.substr(0, std::max<size_t>(length, 1));
}

int64_t CountUnits(std::string_view text, TextUnit unit) {
  if (unit == TextUnit::kByte) return std::ssize(text);
  int64_t count = 0;
  for (; !text.empty(); text.remove_prefix(FirstUnit(text, unit).size())) ++count;
  return count;
}

Vocabulary::Vocabulary(std::string_view text, TextUnit unit) : unit_(unit) {
  std::set<std::string_view> longer;
  std::array<bool, 256> seen = {};
  while (!text.empty()) {
    const std::string_view symbol = FirstUnit(text, unit);
    if (symbol.size() == 1) {
      seen[static_cast<uint8_t>(symbol[0])] = true;
    } else {
      longer.insert(symbol);
    }
    text.remove_prefix(symbol.size());
  }
  of_byte_.fill(-1);
  for (size_t byte = 0; byte < seen.size(); ++byte) {
    if (!seen[byte]) continue;
    of_byte_[byte] = static_cast<int32_t>(symbols_.size());
    symbols_.emplace_back(1, static_cast<char>(byte));
  }
  // Longer sequences begin with bytes above those of ASCII.
  for (const std::string_view symbol : longer) {
    of_longer_.emplace(symbol, static_cast<int32_t>(symbols_.size()));
    symbols_.emplace_back(symbol);
  }
}

int32_t Vocabulary::Find(std::string_view symbol) const {
  if (symbol.size() == 1) return of_byte_[static_cast<uint8_t>(symbol[0])];
  const auto found = of_longer_.find(std::string(symbol));
  return found == of_longer_.end() ? -1 : found->second;
}

int32_t Vocabulary::Take(std::string_view& text) const {
  const std::string_view symbol = FirstUnit(text, unit_);
  const int32_t index = Find(symbol);
  if (index < 0) {
    throw DataError(fmt::format("{} of the text is not in the vocabulary",
                                symbol.size() == 1
                                    ? fmt::format("byte 0x{:02x}", static_cast<uint8_t>(symbol[0]))
                                    : Quoted(symbol)));
  }
  text.remove_prefix(symbol.size());
  return index;
}

std::vector<int32_t> Vocabulary::Encode(std::string_view text) const {
  std::vector<int32_t> indices;
  while (!text.empty()) indices.push_back(Take(text));
  return indices;
}

}  // namespace planish::lab
