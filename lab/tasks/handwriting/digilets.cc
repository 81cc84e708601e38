#include "lab/tasks/handwriting/digilets.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/error.h"

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
    for (size_t i = 0; i < kDigiletsCharacters.size(); ++i) {
      if (writer.ways[i].empty()) {
        FailToRead(name_, fmt::format("it has no way within the unit square for the character {}",
                                      kDigiletsCharacters[i]));
      }
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

// Composer of lines. Random choices are of integers, so that they are equal everywhere.
class Composer {
 public:
  explicit Composer(uint64_t seed) : random_(seed) {}

  WrittenLine Line(const std::vector<DigiletsWriter>& writers) {
    const DigiletsWriter& writer = writers[Below(writers.size())];
    WrittenLine line{.text = Text(), .points = {}};
    float left = 0;
    for (const char character : line.text) {
      if (character == ' ') {
        left += kBlank;
        continue;
      }
      const auto& ways = writer.ways[kDigiletsCharacters.find(character)];
      left = Place(ways[Below(ways.size())], left, line.points);
    }
    return line;
  }

 private:
  size_t Below(size_t n) { return random_() % n; }

  // Returns a value in [-1/2, 1/2).
  float Centred() { return static_cast<float>(random_() >> 40) * 0x1p-24f - 0.5f; }

  std::string Text() {
    std::string text;
    while (text.size() < kLineLength) {
      if (!text.empty()) text += ' ';
      const size_t kind = Below(8);  // a number, a capitalized word, or a lower-case word
      const size_t length = kind == 0 ? 1 + Below(4) : 2 + Below(6);
      for (size_t i = 0; i < length; ++i) {
        const size_t first = kind == 0 ? 0 : kind <= 2 && i == 0 ? 36 : 10;
        text += kDigiletsCharacters[first + Below(kind == 0 ? 10 : 26)];
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

std::vector<WrittenLine> Compose(const std::vector<DigiletsWriter>& writers, uint64_t seed,
                                 int64_t count) {
  Composer composer(seed);
  std::vector<WrittenLine> lines;
  for (int64_t i = 0; i < count; ++i) lines.push_back(composer.Line(writers));
  return lines;
}

}  // namespace

DigiletsWriter ParseDigilets(const std::vector<std::string>& lines, const std::string& name) {
  return Parser(name).Parse(lines);
}

bool IsDigilets(const fs::path& folder) { return !WriterFiles(folder).empty(); }

Handwriting ReadDigilets(const fs::path& folder, const LineCounts& counts) {
  const std::vector<fs::path> files = WriterFiles(folder);
  if (files.size() < 10) {
    throw DataError(fmt::format("{} has the files of {}; at least ten are needed",
                                Escaped(folder.string()), Count(std::ssize(files), "writer")));
  }
  std::vector<DigiletsWriter> train, valid, test;
  int64_t outside = 0, rests = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    auto& part = i % 10 == 8 ? valid : i % 10 == 9 ? test : train;
    part.push_back(ParseDigilets(ReadLines(files[i]), files[i].string()));
    outside += part.back().outside;
    rests += part.back().rests;
  }
  Handwriting data{.train = Compose(train, 1, counts.train),
                   .valid = Compose(valid, 2, counts.held_out),
                   .test = Compose(test, 3, counts.held_out),
                   .name = "digilets",
                   .source = "files",
                   .description = {},
                   .sha256 = {}};
  data.description = fmt::format(
      "{} training, {} validation and {} test lines of random words composed of the characters of "
      "{}, {} and {} writers of DigiLeTs, read from {}; left out: {} characters beyond the tablet, "
      "{} points of a resting pen",
      FormatInteger(counts.train), FormatInteger(counts.held_out), FormatInteger(counts.held_out),
      train.size(), valid.size(), test.size(), folder.string(), FormatInteger(outside),
      FormatInteger(rests));
  data.sha256 = HashLines(data);
  return data;
}

}  // namespace planish::lab
