#include "lab/tasks/attentive-reader/book_cloze.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/base/random.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/data/sha256.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

using Stretches = std::vector<std::vector<BookSentence>>;
using Words = std::set<std::string, std::less<>>;

// A name must occur at least kMinCapitals times with a capital within sentences, and at most once
// without for every kCapitalsForOne times.
constexpr int64_t kMinCapitals = 5;
constexpr int64_t kCapitalsForOne = 20;
// An entity is a character if it does at least this many things that people do, or has a title as
// often.
constexpr int64_t kMinDeeds = 3;
// One in this many books is held out for test, and another for validation.
constexpr size_t kHeldOutBooks = 8;

// Abbreviations whose full stop does not end a sentence.
const Words kAbbreviations = {"Mr",  "Mrs", "Ms",  "Dr",   "St",  "Mme", "Mlle",  "M",    "Messrs",
                              "Esq", "Rev", "Hon", "Capt", "Col", "Gen", "Lieut", "Prof", "Jr",
                              "Sr",  "No",  "Vol", "Co",   "vol", "viz", "cf"};
// Titles that do not change a name, and those that make a surname another name.
const Words kTitles = {"Mr.",     "Dr.",      "Sir",    "Lord",   "Captain",   "Colonel",
                       "General", "Doctor",   "Uncle",  "King",   "Prince",    "Count",
                       "Baron",   "Monsieur", "M.",     "Don",    "Professor", "Major",
                       "Squire",  "Master",   "Father", "Brother"};
const Words kOtherTitles = {"Mrs.",     "Miss",  "Lady", "Madame", "Mademoiselle",
                            "Mme.",     "Mlle.", "Aunt", "Queen",  "Princess",
                            "Countess", "Madam", "Dame", "Sister"};
// Capitalized words that are not names.
const Words kNoNames = {
    "I",         "O",          "Oh",         "Ah",        "God",      "Heaven",     "Christ",
    "Jesus",     "Monday",     "Tuesday",    "Wednesday", "Thursday", "Friday",     "Saturday",
    "Sunday",    "January",    "February",   "March",     "April",    "May",        "June",
    "July",      "August",     "September",  "October",   "November", "December",   "Christmas",
    "Easter",    "English",    "French",     "German",    "Russian",  "Spanish",    "Italian",
    "American",  "Irish",      "Scotch",     "Dutch",     "Turkish",  "Latin",      "Greek",
    "Roman",     "Christian",  "Christians", "Jew",       "Jews",     "Bible",      "Englishman",
    "Frenchman", "Providence", "Paradise",   "Majesty",   "Highness", "Excellency", "Chapter",
    "CHAPTER",   "Book",       "Part",       "Volume",    "Mr",       "Mrs",        "Dr"};
// Verbs of people's actions.
const Words kDeeds = {"said",      "asked",    "replied",   "cried",    "answered", "exclaimed",
                      "thought",   "looked",   "whispered", "returned", "added",    "observed",
                      "laughed",   "smiled",   "nodded",    "knew",     "felt",     "saw",
                      "went",      "came",     "turned",    "stood",    "sat",      "began",
                      "continued", "murmured", "shouted",   "spoke",    "told",     "took",
                      "says",      "walked",   "ran",       "wished",   "rose"};

// Returns the bytes of the UTF-8 character that begins with `lead`.
size_t Length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Returns true for an English letter, or any character of two or more bytes that is not a mark to
// SplitBook.
bool IsLetter(std::string_view character) {
  if (character.size() > 1) return true;
  const char c = character[0];
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// ASCII equivalents of longer marks.
const std::unordered_map<std::string_view, std::string_view> kMarks = {
    {"“", "\""},     {"”", "\""},     {"„", "\""},     {"«", "\""},     {"»", "\""}, {"‘", "'"},
    {"’", "'"},      {"‚", "'"},      {"—", "--"},     {"–", "--"},     {"―", "--"}, {"…", "..."},
    {"\u00a0", " "}, {"\u2009", " "}, {"\u202f", " "}, {"\ufeff", " "}, {"‐", "-"},  {"‑", "-"}};

// Returns `text` with marks replaced by kMarks, without underscores and asterisks, and with blanks
// for line ends.
std::string Plain(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size();) {
    const std::string_view character = text.substr(i, Length(text[i]));
    i += character.size();
    if (character == "_" || character == "*") continue;
    if (character == "\n" || character == "\t") {
      plain += ' ';
    } else if (const auto mark = kMarks.find(character); mark != kMarks.end()) {
      plain += mark->second;
    } else {
      plain += character;
    }
  }
  return plain;
}

// Returns words, numbers and marks of a paragraph.
std::vector<BookToken> Tokenize(const std::string& text) {
  std::vector<BookToken> tokens;
  bool spaced = true;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == ' ') {
      spaced = true;
      ++i;
      continue;
    }
    const auto character = [&](size_t at) {
      return at < text.size() ? std::string_view(text).substr(at, Length(text[at]))
                              : std::string_view(" ");
    };
    size_t end = i;
    if (IsLetter(character(i))) {
      while (IsLetter(character(end)) ||
             (end > i && (text[end] == '\'' || text[end] == '-') && IsLetter(character(end + 1)))) {
        end += Length(text[end]);
        if (end >= text.size()) break;
      }
      std::string word = text.substr(i, end - i);
      if (word.ends_with("'s") && word.size() > 2) {  // possessive: the name is its own word
        tokens.push_back({word.substr(0, word.size() - 2), spaced});
        tokens.push_back({"'s", false});
      } else {
        const bool initial = word.size() == 1 && word != "I" && word != "a" && word != "A";
        if (character(end) == "." && (initial || kAbbreviations.contains(word))) {
          word += '.';
          ++end;
        }
        tokens.push_back({word, spaced});
      }
    } else if (IsDigit(text[i])) {
      while (end < text.size() &&
             (IsDigit(text[end]) ||
              (text[end] == ',' && end + 1 < text.size() && IsDigit(text[end + 1])))) {
        ++end;
      }
      tokens.push_back({text.substr(i, end - i), spaced});
    } else if (text[i] == '-' || text[i] == '.') {  // consecutive dashes or dots are one token
      while (end < text.size() && text[end] == text[i]) ++end;
      const size_t count = end - i;
      tokens.push_back({text[i] == '-' ? "--" : count > 1 ? "..." : ".", spaced});
    } else {
      end = i + 1;
      tokens.push_back({text.substr(i, 1), spaced});
    }
    spaced = false;
    i = end;
  }
  return tokens;
}

bool EndsSentence(const std::string& text) {
  return text == "." || text == "!" || text == "?" || text == "...";
}

bool IsQuote(const std::string& text) { return text == "\"" || text == "'"; }

// Returns true for an accented Latin capital, À to Þ, at `at`: two bytes.
bool IsMarkedCapital(const std::string& text, size_t at) {
  if (at + 1 >= text.size() || text[at] != '\xc3') return false;
  const auto second = static_cast<uint8_t>(text[at + 1]);
  return second <= 0x9e && second != 0x97;  // 0x97 is the multiplication sign
}

// Returns true if the text, or its rest after d' as in d'Artagnan, begins with a capital.
bool BeginsWithCapital(const std::string& text) {
  const size_t at = text.starts_with("d'") && text.size() > 2 ? 2 : 0;
  return (text[at] >= 'A' && text[at] <= 'Z') || IsMarkedCapital(text, at);
}

std::string Lower(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] >= 'A' && text[i] <= 'Z') text[i] = static_cast<char>(text[i] - 'A' + 'a');
    if (IsMarkedCapital(text, i)) text[i + 1] = static_cast<char>(text[i + 1] + 0x20);
  }
  return text;
}

bool IsWord(const std::string& text) {
  return IsLetter(std::string_view(text).substr(0, Length(text[0])));
}

// Returns true if the text has two or more English letters, all of them capitals.
bool IsShouted(std::string_view text) {
  const auto is_capital = [](char c) { return c >= 'A' && c <= 'Z'; };
  const auto is_small = [](char c) { return c >= 'a' && c <= 'z'; };
  return std::ranges::none_of(text, is_small) && std::ranges::count_if(text, is_capital) > 1;
}

std::string Joined(const BookSentence& sentence) {
  std::string text;
  for (const BookToken& token : sentence) text += token.text;
  return text;
}

// Splits a paragraph into sentences. A remainder without an end is the last one.
std::vector<BookSentence> SplitParagraph(const std::vector<BookToken>& tokens) {
  std::vector<BookSentence> sentences;
  BookSentence sentence;
  for (size_t i = 0; i < tokens.size();) {
    sentence.push_back(tokens[i]);
    if (!EndsSentence(tokens[i++].text)) continue;
    while (i < tokens.size() &&
           (EndsSentence(tokens[i].text) ||
            (!tokens[i].spaced && (IsQuote(tokens[i].text) || tokens[i].text == ")")))) {
      sentence.push_back(tokens[i++]);
    }
    // As in: "Who are you?" said the Caterpillar.
    const bool goes_on = i < tokens.size() && !BeginsWithCapital(tokens[i].text) &&
                         !IsDigit(tokens[i].text[0]) && !IsQuote(tokens[i].text) &&
                         tokens[i].text != "(";
    if (!goes_on) sentences.push_back(std::exchange(sentence, {}));
  }
  if (!sentence.empty()) sentences.push_back(std::move(sentence));
  return sentences;
}

// Returns a number that depends only on `text`.
uint64_t NumberOf(const std::string& text) {
  Sha256 sha;
  sha.Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return std::stoull(sha.Hex().substr(0, 16), nullptr, 16);
}

// Finder of names among a book's words, and of the names of one entity.
class NameFinder {
 public:
  explicit NameFinder(const Stretches& stretches) : stretches_(stretches) {
    FindWords();
    FindSurnames();
  }

  BookNames Names() {
    BookNames names;
    std::map<std::string, size_t> numbers;
    std::vector<int64_t> deeds;
    for (const auto& stretch : stretches_) {
      auto& sentences = names.mentions.emplace_back();
      for (const BookSentence& sentence : stretch) {
        std::vector<Mention>& found = sentences.emplace_back();
        for (const Run& run : Runs(sentence)) {
          const auto [place, is_new] = numbers.try_emplace(Key(sentence, run), deeds.size());
          if (is_new) {
            std::string name;
            for (size_t i = run.begin; i < run.end; ++i) {
              name += (i > run.begin ? " " : "") + sentence[i].text;
            }
            names.entities.push_back({name, false});
            deeds.push_back(0);
          }
          found.push_back({run.begin, run.end, place->second});
          const auto does = [&](size_t i) {
            return i < sentence.size() && kDeeds.contains(sentence[i].text);
          };
          deeds[place->second] +=
              run.names > run.begin || does(run.end) || (run.begin > 0 && does(run.begin - 1));
        }
      }
    }
    for (size_t i = 0; i < deeds.size(); ++i) {
      names.entities[i].character = deeds[i] >= kMinDeeds;
    }
    return names;
  }

 private:
  // Name of tokens begin to end - 1; those before `names` are its title.
  struct Run {
    size_t begin, names, end;
  };

  template <class F>
  void ForEachSentence(F&& f) const {
    for (const auto& stretch : stretches_) {
      for (const BookSentence& sentence : stretch) f(sentence);
    }
  }

  void FindWords() {
    std::unordered_map<std::string, int64_t> within, lower;
    ForEachSentence([&](const BookSentence& sentence) {
      for (size_t i = 0; i < sentence.size(); ++i) {
        const std::string& text = sentence[i].text;
        if (!IsWord(text)) continue;
        if (!BeginsWithCapital(text)) {
          ++lower[text];
        } else if (i > 0 && (IsWord(sentence[i - 1].text) || sentence[i - 1].text == ",")) {
          ++within[text];
        }
      }
    });
    for (const auto& [word, count] : within) {
      const auto other = lower.find(Lower(word));
      if (count >= kMinCapitals && word.size() > 1 && !IsShouted(word) && !word.starts_with("I'") &&
          !word.ends_with('.') &&
          (other == lower.end() || other->second * kCapitalsForOne <= count) &&
          !kNoNames.contains(word) && !kTitles.contains(word) && !kOtherTitles.contains(word)) {
        words_.insert(word);
      }
    }
  }

  // Finds surnames that belong to one given name in nearly all their uses.
  void FindSurnames() {
    std::map<std::string, std::map<std::string, int64_t>> given;
    ForEachSentence([&](const BookSentence& sentence) {
      for (const Run& run : Runs(sentence)) {
        if (run.end - run.names < 2) continue;
        ++given[sentence[run.end - 1].text][sentence[run.names].text];
      }
    });
    for (const auto& [surname, counts] : given) {
      int64_t all = 0;
      std::pair<int64_t, std::string> most_frequent;
      for (const auto& [name, count] : counts) {
        all += count;
        if (count > most_frequent.first) most_frequent = {count, name};
      }
      // A surname that also comes first is a given name, such as the second of "Mary Jane".
      const bool comes_first = std::ranges::any_of(
          given, [&](const auto& other) { return other.second.contains(surname); });
      if (most_frequent.first * 10 >= all * 9 && !comes_first) {
        given_name_[surname] = most_frequent.second;
      }
    }
  }

  std::vector<Run> Runs(const BookSentence& sentence) const {
    std::vector<Run> runs;
    for (size_t i = 0; i < sentence.size();) {
      Run run = {i, i, i};
      while (run.names < sentence.size() && IsTitle(sentence[run.names].text)) ++run.names;
      run.end = run.names;
      while (run.end < sentence.size() && words_.contains(sentence[run.end].text)) ++run.end;
      if (run.end == run.names) {
        i = std::max(run.names, i + 1);
        continue;
      }
      runs.push_back(run);
      i = run.end;
    }
    return runs;
  }

  static bool IsTitle(const std::string& text) {
    return kTitles.contains(text) || kOtherTitles.contains(text);
  }

  // Returns a key that is equal for all mentions of an entity.
  std::string Key(const BookSentence& sentence, const Run& run) const {
    const std::string& first = sentence[run.names].text;
    if (run.end - run.names > 1) return first;
    if (run.names > run.begin && kOtherTitles.contains(sentence[run.names - 1].text)) {
      return sentence[run.names - 1].text + " " + first;
    }
    const auto found = given_name_.find(first);
    return found == given_name_.end() ? first : found->second;
  }

  const Stretches& stretches_;
  Words words_;
  std::map<std::string, std::string> given_name_;
};

// Generator of the questions of one book.
class QuestionGenerator {
 public:
  QuestionGenerator(const std::string& text, std::string name, const BookCloze& request,
                    ClozeWords* words)
      : stretches_(SplitBook(text)),
        names_(FindNames(stretches_)),
        name_(std::move(name)),
        request_(request),
        words_(words),
        random_(NumberOf(fmt::format("{} {}", request.seed, name_))) {}

  std::vector<ClozeQuestion> Generate() {
    const auto count = static_cast<size_t>(request_.sentences);
    std::vector<ClozeQuestion> questions;
    size_t passed = 0;  // sentences of earlier stretches
    for (size_t s = 0; s < stretches_.size(); ++s) {
      for (size_t begin = 0; begin + count < stretches_[s].size();) {
        auto question = QuestionOn(s, begin, passed + begin + count);
        begin += question ? static_cast<size_t>(request_.stride) : 1;
        if (question) questions.push_back(std::move(*question));
      }
      passed += stretches_[s].size();
    }
    return questions;
  }

 private:
  // Returns a question on the passage that begins with sentence `begin` of stretch `s`, or nullopt
  // if the passage does not qualify.
  std::optional<ClozeQuestion> QuestionOn(size_t s, size_t begin, size_t number) {
    const size_t last = begin + static_cast<size_t>(request_.sentences);
    std::vector<ClozeToken> passage;
    std::vector<size_t> entities;  // in order of appearance
    for (size_t i = begin; i < last; ++i) Append(s, i, &passage, &entities);
    if (passage.size() > static_cast<size_t>(request_.longest_passage)) return std::nullopt;
    if (entities.size() < static_cast<size_t>(request_.min_entities)) return std::nullopt;

    std::vector<Mention> candidates;
    const std::vector<Mention>& asked = names_.mentions[s][last];
    for (const Mention& mention : asked) {
      const auto same = std::ranges::count(asked, mention.entity, &Mention::entity);
      if (same == 1 && names_.entities[mention.entity].character &&
          std::ranges::find(entities, mention.entity) != entities.end()) {
        candidates.push_back(mention);
      }
    }
    if (candidates.empty()) return std::nullopt;
    const Mention left_out = candidates[Choose(random_, candidates.size())];
    std::vector<ClozeToken> question;
    Append(s, last, &question, &entities);
    const auto length = static_cast<int64_t>(question.size());
    if (length < request_.shortest_question || length > request_.longest_question ||
        entities.size() > static_cast<size_t>(request_.entities)) {
      return std::nullopt;
    }
    // The first elements of a random order of all numbers become the entities' numbers.
    std::vector<int32_t> numbers(static_cast<size_t>(request_.entities));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
    Shuffle(numbers, random_);
    std::map<int32_t, int32_t> number_of;
    ClozeQuestion result;
    for (size_t i = 0; i < entities.size(); ++i) {
      number_of[static_cast<int32_t>(entities[i])] = numbers[i];
      result.names.emplace_back(numbers[i], names_.entities[entities[i]].name);
    }
    std::ranges::sort(result.names);
    result.answer = number_of.at(static_cast<int32_t>(left_out.entity));
    for (auto* tokens : {&passage, &question}) {
      for (ClozeToken& token : *tokens) {
        if (IsEntity(token)) token = EntityToken(number_of.at(EntityOf(token)));
      }
    }
    std::ranges::replace(question, EntityToken(result.answer), kPlaceholder);
    result.passage = std::move(passage);
    result.question = std::move(question);
    result.source = fmt::format("{}{}, sentence {}", kBookSource, name_, number + 1);
    return result;
  }

  // Appends a sentence with the book's numbers of its entities, and its new entities to `entities`.
  void Append(size_t s, size_t i, std::vector<ClozeToken>* tokens, std::vector<size_t>* entities) {
    const BookSentence& sentence = stretches_[s][i];
    auto mention = names_.mentions[s][i].begin();
    for (size_t t = 0; t < sentence.size();) {
      if (mention != names_.mentions[s][i].end() && mention->begin == t) {
        tokens->push_back(EntityToken(static_cast<int32_t>(mention->entity)));
        if (std::ranges::find(*entities, mention->entity) == entities->end()) {
          entities->push_back(mention->entity);
        }
        t = mention->end;
        ++mention;
      } else {
        tokens->push_back(words_->Token(Lower(sentence[t++].text)));
      }
    }
  }

  Stretches stretches_;
  BookNames names_;
  std::string name_;
  const BookCloze& request_;
  ClozeWords* words_;
  std::mt19937_64 random_;
};

fs::path FindBooks(const fs::path& folder) {
  std::error_code error;
  for (const fs::path& candidate : {folder, folder / "books"}) {
    if (!fs::is_directory(candidate, error)) continue;
    for (const auto& entry : fs::directory_iterator(candidate, error)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".txt") || name.ends_with(".txt.gz")) return candidate;
    }
  }
  return {};
}

// Returns a set's questions from these books. If there are more than `max_count`, each book
// contributes an equal number as far as possible.
std::vector<ClozeQuestion> Gather(std::vector<std::vector<ClozeQuestion>> books, size_t max_count,
                                  std::mt19937_64& random) {
  for (auto& book : books) Shuffle(book, random);
  std::vector<ClozeQuestion> all;
  for (bool some = true; some && all.size() < max_count;) {
    some = false;
    for (auto& book : books) {
      if (book.empty() || all.size() == max_count) continue;
      all.push_back(std::move(book.back()));
      book.pop_back();
      some = true;
    }
  }
  Shuffle(all, random);
  return all;
}

}  // namespace

Stretches SplitBook(std::string_view text) {
  Stretches stretches(1);
  const auto end_stretch = [&] {
    if (!stretches.back().empty()) stretches.emplace_back();
  };
  for (size_t begin = 0; begin < text.size();) {
    // A paragraph ends at a blank line.
    size_t end = begin, next = text.size();
    for (size_t line = begin; line < text.size();) {
      const size_t stop = std::min(text.find('\n', line), text.size());
      if (text.substr(line, stop - line).find_first_not_of(" \t\r") == std::string_view::npos) {
        next = stop + 1;
        break;
      }
      end = stop;
      line = stop + 1;
    }
    std::string paragraph(text.substr(begin, end - begin));
    std::erase(paragraph, '\r');
    begin = next;
    for (BookSentence& sentence : SplitParagraph(Tokenize(Plain(paragraph)))) {
      const bool ended = std::ranges::any_of(
          sentence, [](const BookToken& token) { return EndsSentence(token.text); });
      if (!ended || IsShouted(Joined(sentence))) {
        end_stretch();
      } else {
        stretches.back().push_back(std::move(sentence));
      }
    }
  }
  if (stretches.back().empty()) stretches.pop_back();
  return stretches;
}

BookNames FindNames(const Stretches& stretches) { return NameFinder(stretches).Names(); }

bool HasBooks(const fs::path& folder) { return !FindBooks(folder).empty(); }

ClozeSets MakeBookCloze(const fs::path& folder, const BookCloze& request) {
  const fs::path found = FindBooks(folder);
  if (found.empty()) {
    throw DataError(fmt::format("{} has no books *.txt or *.txt.gz, itself or in a folder books",
                                Escaped(folder.string())));
  }
  std::map<std::string, fs::path> books;  // the uncompressed one if a book exists in both forms
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(found, error)) {
    std::string name = entry.path().filename().string();
    const bool packed = name.ends_with(".gz");
    if (packed) name.resize(name.size() - 3);
    if (name.ends_with(".txt") && !(packed && books.contains(name))) books[name] = entry.path();
  }
  std::vector<std::pair<uint64_t, fs::path>> order;
  for (const auto& [name, file] : books) {
    order.emplace_back(NumberOf(fmt::format("split {} {}", request.seed, name)), file);
  }
  if (order.size() < 3) {
    throw DataError(fmt::format("{} has {}; at least three are needed", Escaped(found.string()),
                                Count(std::ssize(order), "book")));
  }
  std::ranges::sort(order);
  const size_t held_out = std::max(order.size() / kHeldOutBooks, size_t{1});

  ClozeSets sets;
  std::vector<std::vector<ClozeQuestion>> test, valid, train;
  for (size_t i = 0; i < order.size(); ++i) {
    const fs::path& file = order[i].second;
    std::string name = file.filename().string();
    name = Escaped(name.substr(0, name.find(".txt")));
    auto& set = i < held_out ? test : i < 2 * held_out ? valid : train;
    set.push_back(ReadInMemory(file, [&] {
      std::string text;
      for (const std::string& line : ReadLines(file)) text += line + "\n";
      return QuestionGenerator(text, name, request, &sets.words).Generate();
    }));
  }
  std::mt19937_64 random(static_cast<uint64_t>(request.seed));
  const auto max_held_out = static_cast<size_t>(request.held_out);
  sets.train = Gather(std::move(train), static_cast<size_t>(request.train), random);
  sets.valid = Gather(std::move(valid), max_held_out, random);
  sets.test = Gather(std::move(test), max_held_out, random);
  for (const auto& [set, what] :
       {std::pair(&sets.train, "training"), {&sets.valid, "validation"}, {&sets.test, "test"}}) {
    if (set->empty()) {
      throw DataError(fmt::format("{} gives no {} questions", Escaped(found.string()), what));
    }
  }
  sets.name = "books";
  sets.source = "files";
  sets.description = fmt::format(
      "{} training, {} validation and {} test questions of {} + {} + {} books, generated by "
      "planish from the texts in {}, seed {}",
      FormatInteger(static_cast<int64_t>(sets.train.size())),
      FormatInteger(static_cast<int64_t>(sets.valid.size())),
      FormatInteger(static_cast<int64_t>(sets.test.size())), order.size() - 2 * held_out, held_out,
      held_out, fs::weakly_canonical(found).filename().string(), request.seed);
  sets.sha256 = HashQuestions(sets);
  return sets;
}

}  // namespace planish::lab
