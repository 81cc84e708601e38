#include "lab/tasks/handwriting/synthetic_strokes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "lab/base/format_integer.h"

namespace planish::lab {

namespace {

struct Knot {
  int x, y;  // y upwards from the line
};
using Stroke = std::vector<Knot>;

// Small letters are 50 high.
const std::map<char, std::vector<Stroke>>& Letters() {
  static const auto& letters = *new std::map<char, std::vector<Stroke>>{
      {'a', {{{35, 42}, {15, 50}, {0, 25}, {12, 0}, {34, 18}, {36, 48}, {38, 0}}}},
      {'e', {{{2, 26}, {34, 28}, {28, 46}, {14, 50}, {0, 24}, {12, 0}, {34, 8}}}},
      {'i', {{{0, 50}, {1, 0}}, {{0, 74}, {3, 76}}}},
      {'l', {{{2, 100}, {0, 0}}}},
      {'n', {{{0, 50}, {0, 0}, {2, 34}, {16, 50}, {30, 40}, {31, 0}}}},
      {'o', {{{26, 48}, {10, 46}, {0, 24}, {12, 2}, {28, 4}, {38, 26}, {24, 50}}}},
      {'r', {{{0, 50}, {0, 0}, {2, 34}, {12, 48}, {26, 49}}}},
      {'s', {{{30, 44}, {14, 50}, {4, 38}, {28, 14}, {16, 0}, {0, 6}}}},
      {'t', {{{12, 92}, {12, 6}, {24, 0}}, {{0, 56}, {28, 57}}}},
  };
  return letters;
}

constexpr const char* kWords[] = {
    "a",     "art",    "as",   "at",    "ear",  "east", "in",     "iron",  "is",     "it",
    "lion",  "letter", "line", "loose", "nine", "no",   "noise",  "note",  "oil",    "on",
    "or",    "rest",   "rose", "sail",  "salt", "sea",  "silent", "slate", "snail",  "so",
    "stone", "store",  "tea",  "tile",  "to",   "toe",  "train",  "trial", "orient", "ration"};

// A line ends with the word that reaches this number of characters.
constexpr size_t kLineLength = 24;
// Maximum distance between two points of a stroke, in x and in y.
constexpr int kStep = 18;

// Writer of lines. Random choices and coordinates are integers, so that they are equal everywhere.
class Hand {
 public:
  explicit Hand(uint64_t seed) : random_(seed) {}

  WrittenLine Line() {
    width_ = Between(80, 130);
    height_ = Between(80, 120);
    slant_ = Between(-15, 35);
    WrittenLine line;
    while (line.text.size() < kLineLength) {
      if (!line.text.empty()) line.text += ' ';
      line.text += kWords[Between(0, static_cast<int>(std::size(kWords)) - 1)];
    }
    int left = 0;
    for (const char letter : line.text) {
      left += letter == ' ' ? 40 : Write(Letters().at(letter), left, line.points) + 14;
    }
    line.points = WithoutRests(line.points);
    return line;
  }

 private:
  int Between(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  // Writes a letter. Returns its width.
  int Write(const std::vector<Stroke>& letter, int left, std::vector<PenPoint>& points) {
    int right = 0;
    for (const Stroke& stroke : letter) {
      AddPoint(stroke[0], left, points);
      for (size_t i = 1; i < stroke.size(); ++i) {
        const Knot from = stroke[i - 1], to = stroke[i];
        const int steps = 1 + std::max(std::abs(to.x - from.x), std::abs(to.y - from.y)) / kStep;
        for (int s = 1; s <= steps; ++s) {
          AddPoint({from.x + (to.x - from.x) * s / steps, from.y + (to.y - from.y) * s / steps},
                   left, points);
        }
      }
      points.back().lifts = true;
      for (const Knot& knot : stroke) right = std::max(right, knot.x * width_ / 100);
    }
    return right;
  }

  // Adds noise of up to two units, in steps that rarely repeat.
  void AddPoint(const Knot& knot, int left, std::vector<PenPoint>& points) {
    const int x = 1000 * left + knot.x * width_ * 10 + knot.y * slant_ * 10 + Between(-2000, 2000);
    const int y = -knot.y * height_ * 10 + Between(-2000, 2000);
    points.push_back({.x = static_cast<float>(x) / 1024, .y = static_cast<float>(y) / 1024});
  }

  std::mt19937_64 random_;
  int width_ = 100, height_ = 100, slant_ = 0;  // per cent
};

std::vector<WrittenLine> MakeLines(uint64_t seed, int64_t count) {
  Hand hand(seed);
  std::vector<WrittenLine> lines;
  for (int64_t i = 0; i < count; ++i) lines.push_back(hand.Line());
  return lines;
}

}  // namespace

Handwriting MakeStrokes(const LineRequest& request) {
  Handwriting data{.train = MakeLines(1, request.train),
                   .valid = MakeLines(2, request.held_out),
                   .test = MakeLines(3, request.held_out),
                   .name = "synthetic strokes",
                   .source = "embedded",
                   .description = {},
                   .sha256 = {}};
  data.description = fmt::format(
      "{} training, {} validation and {} test lines of short words in straight strokes, generated "
      "by planish",
      FormatInteger(request.train), FormatInteger(request.held_out),
      FormatInteger(request.held_out));
  data.sha256 = HashLines(data);
  return data;
}

}  // namespace planish::lab
