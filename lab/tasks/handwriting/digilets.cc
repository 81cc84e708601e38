#include "lab/tasks/handwriting/digilets.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/error.h"
#include "lab/tasks/handwriting/alphabet.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr size_t kNumbersOfPoint = 5;
// Largest absolute coordinate.
constexpr double kMaxCoordinate = 100;
// Resolution of the tablet in x and y.
constexpr float kStepX = 1.0f / 274, kStepY = 1.0f / 240;
// Width between characters, and of a blank.
constexpr float kGap = 0.06f, kBlank = 0.25f;
// A line ends with the word that reaches this number of characters.
constexpr size_t kLineLength = 24;
// Minimum number of writers: one for each set.
constexpr size_t kMinWriters = 3;

class Parser {
 public:
  explicit Parser(const std::string& name) : name_(name) {}

  DigiletsWriter Parse(const std::vector<std::string>& lines) {
    if (lines.size() % 2 != 0) {
      FailAtLine(name_, std::ssize(lines), "no line with the label of its points follows");
    }
    DigiletsWriter writer;
    for (line_ = 1; line_ < lines.size(); line_ += 2) {
      const std::vector<PenPoint> points = Points(Numbers(lines[line_ - 1], line_));
      const size_t character = Label(Numbers(lines[line_], line_ + 1));
      const auto is_outside = [](const PenPoint& p) {
        return p.x < 0 || p.x > 1 || p.y < 0 || p.y > 1;
      };
      if (std::ranges::any_of(points, is_outside)) {
        ++writer.outside;
        continue;
      }
      std::vector<PenPoint> way = WithoutRests(points);
      if (way.size() < 2) Fail("all its points are at one place");
      writer.rests += std::ssize(points) - std::ssize(way);
      writer.ways[character].push_back(std::move(way));
    }
    if (std::ranges::all_of(writer.ways, [](const auto& ways) { return ways.empty(); })) {
      FailToRead(name_, "it has no character within the unit square");
    }
    return writer;
  }

 private:
  // Throws for the line of points.
  [[noreturn]] void Fail(const std::string& reason) const {
    FailAtLine(name_, static_cast<int64_t>(line_), reason);
  }

  std::vector<double> Numbers(std::string_view text, size_t line) const {
    std::vector<double> numbers;
    while (true) {
      text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
      if (text.empty()) return numbers;
      const std::string_view word = text.substr(0, text.find_first_of(" \t"));
      double value = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(value)) {
        FailAtLine(name_, static_cast<int64_t>(line),
                   fmt::format("number {} is {}; a finite number was expected", numbers.size() + 1,
                               Quoted(word)));
      }
      numbers.push_back(value);
      text.remove_prefix(word.size());
    }
  }

  std::vector<PenPoint> Points(const std::vector<double>& numbers) const {
    if (numbers.empty() || numbers.size() % kNumbersOfPoint != 0) {
      Fail(fmt::format("it has {}; five for every point were expected",
                       Count(std::ssize(numbers), "number")));
    }
    std::vector<PenPoint> points;
    for (size_t i = 0; i < numbers.size(); i += kNumbersOfPoint) {
      const double x = numbers[i], y = numbers[i + 1], starts = numbers[i + 3];
      if (std::abs(x) > kMaxCoordinate || std::abs(y) > kMaxCoordinate) {
        Fail(fmt::format("a point is at {:g}, {:g}; coordinates from -{} to {} were expected", x, y,
                         kMaxCoordinate, kMaxCoordinate));
      }
      if ((starts != 0 && starts != 1) || (i == 0 && starts != 1)) {
        Fail(fmt::format("point {} has {:g} as the start of a stroke; {} was expected",
                         i / kNumbersOfPoint + 1, starts, i == 0 ? "1" : "0 or 1"));
      }
      if (starts == 1 && !points.empty()) points.back().lifts = true;
      points.push_back({.x = static_cast<float>(x), .y = static_cast<float>(y)});
    }
    points.back().lifts = true;
    return points;
  }

  size_t Label(const std::vector<double>& numbers) const {
    const auto ones = std::ranges::count(numbers, 1.0), zeros = std::ranges::count(numbers, 0.0);
    if (numbers.size() != kDigiletsCharacters.size() || ones != 1 ||
        ones + zeros != std::ssize(numbers)) {
      FailAtLine(name_, static_cast<int64_t>(line_) + 1,
                 fmt::format("it has {}, {} of them 1 and {} of them 0; 62 were expected, one of "
                             "them 1 and the others 0",
                             Count(std::ssize(numbers), "number"), ones, zeros));
    }
    return static_cast<size_t>(std::ranges::find(numbers, 1.0) - numbers.begin());
  }

  const std::string& name_;
  size_t line_ = 0;
};

// Returns "002" for 002.txt and for 002.txt.gz.
std::optional<std::string> WriterOf(const fs::path& file) {
  std::string name = file.filename().string();
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  if (!name.ends_with(".txt")) return std::nullopt;
  name.resize(name.size() - 4);
  const bool is_number = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
  return is_number ? std::optional(name) : std::nullopt;
}

std::vector<fs::path> WriterFiles(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (WriterOf(entry.path())) files.push_back(entry.path());
  }
  const auto writer = [](const fs::path& file) { return *WriterOf(file); };
  std::ranges::sort(files);
  std::ranges::stable_sort(files, {}, writer);
  // Keeps the uncompressed file of a writer with both.
  const auto twice = std::ranges::unique(files, {}, writer);
  files.erase(twice.begin(), twice.end());
  return files;
}

// Kinds of characters of DigiLeTs, as indices from `first` to `end` - 1 of kDigiletsCharacters.
enum Kind : size_t { kDigits, kLower, kUpper, kKinds };
struct KindRange {
  size_t first, end;
};
constexpr std::array<KindRange, kKinds> kKindRanges = {{{0, 10}, {10, 36}, {36, 62}}};

// Writer with the characters that lines have, by their kinds.
struct Hand {
  DigiletsWriter writer;
  std::array<std::vector<size_t>, kKinds> characters;
};

// Returns the hand of a writer with those of the `symbols` that he wrote.
Hand HandOf(DigiletsWriter writer, std::string_view symbols) {
  Hand hand{.writer = std::move(writer), .characters = {}};
  for (size_t kind = 0; kind < kKinds; ++kind) {
    for (size_t i = kKindRanges[kind].first; i < kKindRanges[kind].end; ++i) {
      if (!hand.writer.ways[i].empty() && symbols.find(kDigiletsCharacters[i]) != symbols.npos) {
        hand.characters[kind].push_back(i);
      }
    }
  }
  return hand;
}

bool HasCharacters(const Hand& hand) {
  return std::ranges::any_of(hand.characters, [](const auto& of) { return !of.empty(); });
}

// Composer of lines. Random choices are of integers, so that they are equal everywhere.
class Composer {
 public:
  explicit Composer(uint64_t seed) : random_(seed) {}

  WrittenLine Line(const std::vector<Hand>& hands) {
    const Hand& hand = hands[Below(hands.size())];
    WrittenLine line{.text = Text(hand), .points = {}};
    float left = 0;
    for (const char character : line.text) {
      if (character == ' ') {
        left += kBlank;
        continue;
      }
      const auto& ways = hand.writer.ways[kDigiletsCharacters.find(character)];
      left = Place(ways[Below(ways.size())], left, line.points);
    }
    return line;
  }

 private:
  size_t Below(size_t n) { return random_() % n; }

  // Returns a value in [-1/2, 1/2).
  float Centred() { return static_cast<float>(random_() >> 40) * 0x1p-24f - 0.5f; }

  // Returns the characters of a kind, or those of another kind if there are none.
  static const std::vector<size_t>& Choices(const Hand& hand, Kind kind) {
    for (const Kind of : {kind, kLower, kUpper, kDigits}) {
      if (!hand.characters[of].empty()) return hand.characters[of];
    }
    return hand.characters[kind];
  }

  std::string Text(const Hand& hand) {
    std::string text;
    while (text.size() < kLineLength) {
      if (!text.empty()) text += ' ';
      const size_t word = Below(8);  // a number, a capitalized word, or a lower-case word
      const size_t length = word == 0 ? 1 + Below(4) : 2 + Below(6);
      for (size_t i = 0; i < length; ++i) {
        const Kind kind = word == 0 ? kDigits : word <= 2 && i == 0 ? kUpper : kLower;
        const std::vector<size_t>& choices = Choices(hand, kind);
        text += kDigiletsCharacters[choices[Below(choices.size())]];
      }
    }
    return text;
  }

  // Adds a character whose left end is at `left`. Returns the start of the next one.
  float Place(const std::vector<PenPoint>& way, float left, std::vector<PenPoint>& points) {
    const auto [low, high] = std::ranges::minmax(way, {}, &PenPoint::x);
    for (const PenPoint& point : way) {
      const float x = left + point.x - low.x + kStepX * Centred();
      const float y = 1 - point.y + kStepY * Centred();
      points.push_back({.x = x, .y = y, .lifts = point.lifts});
    }
    return left + (high.x - low.x) + kGap * (1.5f + Centred());
  }

  std::mt19937_64 random_;
};

std::vector<WrittenLine> Compose(const std::vector<Hand>& hands, uint64_t seed, int64_t count) {
  Composer composer(seed);
  std::vector<WrittenLine> lines;
  for (int64_t i = 0; i < count; ++i) lines.push_back(composer.Line(hands));
  return lines;
}

// Keeps the files of the writers that `text` lists, such as "1-20 33".
void KeepWriters(const std::string& text, std::vector<fs::path>* files) {
  const auto number_of = [](const fs::path& file) {
    int64_t number = 0;
    const std::string writer = *WriterOf(file);
    std::from_chars(writer.data(), writer.data() + writer.size(), number);
    return number;
  };
  std::set<int64_t> found;
  for (const fs::path& file : *files) found.insert(number_of(file));
  const std::set<int64_t> chosen = ChooseWriters(text, found);
  std::erase_if(*files, [&](const fs::path& file) { return !chosen.contains(number_of(file)); });
}

}  // namespace

DigiletsWriter ParseDigilets(const std::vector<std::string>& lines, const std::string& name) {
  return Parser(name).Parse(lines);
}

bool IsDigilets(const fs::path& folder) { return !WriterFiles(folder).empty(); }

Handwriting ReadDigilets(const fs::path& folder, const LineRequest& request) {
  for (const std::string_view symbol : CharactersOf(request.symbols)) {
    if (symbol.size() != 1 || kDigiletsCharacters.find(symbol[0]) == std::string_view::npos) {
      throw UsageError(
          fmt::format("[handwriting] symbols must be digits and letters from a to z or A to Z for "
                      "DigiLeTs, got {}",
                      Quoted(request.symbols)));
    }
  }
  std::vector<fs::path> files = WriterFiles(folder);
  if (!request.writers.empty()) KeepWriters(request.writers, &files);
  std::vector<Hand> hands;
  int64_t outside = 0, rests = 0, without = 0;
  for (const fs::path& file : files) {
    Hand hand = HandOf(ParseDigilets(ReadLines(file), file.string()),
                       request.symbols.empty() ? kDigiletsCharacters : request.symbols);
    if (!HasCharacters(hand)) {
      ++without;
      continue;
    }
    outside += hand.writer.outside;
    rests += hand.writer.rests;
    hands.push_back(std::move(hand));
  }
  if (hands.size() < kMinWriters) {
    throw DataError(fmt::format("{} has the files of {}{}; at least {} are needed",
                                Escaped(folder.string()), Count(std::ssize(hands), "writer"),
                                request.symbols.empty() ? "" : " of these symbols", kMinWriters));
  }
  std::vector<Hand> train, valid, test;
  const size_t count = hands.size();
  for (size_t i = 0; i < count; ++i) {
    // Of fewer than ten writers, the last two are held out.
    const size_t place = count >= 10 ? i % 10 : i + 10 - count;
    auto& part = place == 8 ? valid : place == 9 ? test : train;
    part.push_back(std::move(hands[i]));
  }
  Handwriting data{.train = Compose(train, 1, request.train),
                   .valid = Compose(valid, 2, request.held_out),
                   .test = Compose(test, 3, request.held_out),
                   .name = "digilets",
                   .source = "files",
                   .description = {},
                   .sha256 = {}};
  data.description = fmt::format(
      "{} training, {} validation and {} test lines of random words composed of the characters{} "
      "of "
      "{}, {} and {} writers of DigiLeTs, read from {}; left out: {} characters beyond the tablet, "
      "{} points of a resting pen",
      FormatInteger(request.train), FormatInteger(request.held_out),
      FormatInteger(request.held_out), request.symbols.empty() ? "" : " " + Quoted(request.symbols),
      train.size(), valid.size(), test.size(), folder.string(), FormatInteger(outside),
      FormatInteger(rests));
  if (without > 0) data.description += fmt::format(", {} without them", Count(without, "writer"));
  data.sha256 = HashLines(data);
  return data;
}

}  // namespace planish::lab
