#include "lab/data/digits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lab/base/format_integer.h"
#include "lab/error.h"

// Drawing gives the same bytes on every machine, because
// - random numbers are integers,
// - the arithmetic is + - * / and sqrt, which IEEE 754 rounds correctly, without other libm
//   functions,
// - no full expression contains two draws, whose order would be unspecified.
namespace planish::lab {

namespace {

constexpr int kSide = 28;
constexpr int kClasses = 10;

// SplitMix64 (Steele, Lea & Flood 2014), seeded with a hash of (seed, stream, index).
class Random {
 public:
  Random(uint64_t seed, uint64_t stream, uint64_t index) : state_(seed) {
    state_ = Next() ^ stream;
    state_ = Next() ^ index;
    state_ = Next();
  }

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  int Below(int n) { return static_cast<int>(((Next() >> 32) * static_cast<uint64_t>(n)) >> 32); }

  float Uniform(float low, float high) {
    return low + (high - low) * (static_cast<float>(Next() >> 40) * 0x1p-24f);
  }

  bool Chance(float probability) { return Uniform(0, 1) < probability; }

  // Returns a value with mean 0 and variance 1, at most 3.47 in magnitude: the sum of four uniform
  // values.
  float Normal() {
    const uint64_t bits = Next();
    const uint64_t sum =
        (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    constexpr float kScale = 1.7320508f * 0x1p-16f;  // 1 / sqrt(4 * 65536^2 / 12)
    return static_cast<float>(static_cast<int>(sum) - 2 * 0xffff) * kScale;
  }

 private:
  uint64_t state_;
};

struct Point {
  float x, y;
};

Point operator+(Point a, Point b) { return {a.x + b.x, a.y + b.y}; }
Point operator-(Point a, Point b) { return {a.x - b.x, a.y - b.y}; }
Point operator*(float s, Point a) { return {s * a.x, s * a.y}; }

// Point of a pen's path, in a box 10 wide and 14 high, y downwards. The path changes direction at
// corners and is smooth elsewhere.
struct Knot {
  float x, y;
  bool corner = false;
};
constexpr bool kCorner = true;

using Stroke = std::vector<Knot>;
using Style = std::vector<Stroke>;

// Returns the ways to write a digit.
const std::vector<Style>& Styles(int digit) {
  // clang-format off
  static const auto& styles = *new std::array<std::vector<Style>, kClasses>{{
      // 0: from the top; overrunning its start; from the right
      {{{{5, 0}, {2, 2.6f}, {1, 7}, {2, 11.4f}, {5, 14}, {8, 11.4f}, {9, 7}, {8, 2.6f}, {5, 0}}},
       {{{6.5f, 0.8f}, {3.5f, 0.6f}, {1.3f, 4}, {1.2f, 9}, {3.5f, 13.4f}, {6.8f, 13.2f},
          {8.9f, 9}, {8.8f, 4.5f}, {7, 1}, {4.2f, 1.2f}}},
       {{{7.5f, 2.5f}, {5, 0}, {2, 2.5f}, {1.2f, 7}, {2.5f, 12}, {5, 14}, {7.8f, 11.5f},
          {8.8f, 7}, {7.8f, 2.6f}, {5.8f, 0.4f}}}},
      // 1: a line; with a flag; with flag and foot
      {{{{5.3f, 0}, {5, 7}, {4.8f, 14}}},
       {{{2.5f, 3.2f}, {5.5f, 0, kCorner}, {5.2f, 7}, {5, 14}}},
       {{{2.5f, 3}, {5.5f, 0, kCorner}, {5.2f, 7}, {5, 14}},
        {{2, 14}, {5, 13.9f}, {8, 14}}}},
      // 2: with a flat base; with a loop; angular
      {{{{1.5f, 3.5f}, {3, 0.8f}, {6, 0}, {8.3f, 2.2f}, {7.8f, 5.5f}, {5, 9},
          {1.2f, 13.8f, kCorner}, {5, 13.7f}, {9, 13.8f}}},
       {{{1.5f, 3}, {4, 0.2f}, {7.5f, 1}, {8, 4.5f}, {5.5f, 9}, {2.5f, 12.8f}, {1, 12.6f},
          {1.6f, 10.8f}, {4, 11.8f}, {6.5f, 13.6f}, {9.2f, 12.8f}}},
       {{{1.5f, 1.6f}, {4.5f, 0.2f}, {8, 1.5f}, {6.8f, 5.5f}, {1.2f, 13.6f, kCorner},
          {9, 13.2f}}}},
      // 3: round; with a flat top; with a loop in the middle
      {{{{1.5f, 2.2f}, {4, 0}, {7.5f, 1.2f}, {7.4f, 4.8f}, {4.4f, 6.5f, kCorner}, {7.8f, 8},
          {8.4f, 11}, {5.5f, 14}, {1.2f, 12.2f}}},
       {{{1.5f, 0.4f}, {8.2f, 0.2f, kCorner}, {4.6f, 5.4f, kCorner}, {7.8f, 7}, {8.5f, 10.4f},
          {5.6f, 13.8f}, {1.2f, 12.4f}}},
       {{{1.8f, 1.8f}, {4.6f, 0}, {7.6f, 2}, {6.5f, 5.4f}, {4, 6.6f}, {3.6f, 5.8f}, {4.8f, 6.2f},
          {7.8f, 8}, {8.2f, 11.5f}, {5, 14}, {1.4f, 12}}}},
      // 4: open; closed; open and round
      {{{{2.5f, 0.5f}, {1.6f, 4}, {1.6f, 7.8f, kCorner}, {9.2f, 7.6f}},
        {{7.2f, 0.8f}, {6.8f, 7}, {6.6f, 14}}},
       {{{6.8f, 14}, {6.8f, 0, kCorner}, {1, 9.4f, kCorner}, {9.4f, 9.2f}}},
       {{{2, 0.4f}, {1.4f, 4}, {2.6f, 7.4f}, {6, 7.2f}, {7.6f, 4.8f}},
        {{7.9f, 0.6f}, {7.6f, 6}, {7, 14}}}},
      // 5: with its hat as a second stroke; in one stroke; like an s
      {{{{3, 0.4f}, {2, 6, kCorner}, {5.5f, 5.2f}, {8.4f, 8}, {7.8f, 12}, {4.5f, 14},
          {1.2f, 12.6f}},
        {{3, 0.4f}, {8.5f, 0.2f}}},
       {{{8.6f, 0.4f}, {2.8f, 0.6f, kCorner}, {2.2f, 6, kCorner}, {5.5f, 5.4f}, {8.2f, 8.2f},
          {7.4f, 12.2f}, {4.4f, 14}, {1.2f, 12.8f}}},
       {{{8.4f, 0.8f}, {4.5f, 0.4f}, {2.2f, 2.6f}, {3, 5.6f}, {6.4f, 7}, {8.2f, 9.8f}, {6.6f, 13},
          {3.4f, 14}, {1, 12.6f}}}},
      // 6: round; with a straight back; with a hook
      {{{{7.4f, 0.4f}, {4, 3}, {1.8f, 7.4f}, {1.8f, 11.4f}, {4.6f, 14}, {7.8f, 12.4f}, {8, 9.2f},
          {5.4f, 7.4f}, {2.2f, 9.6f}}},
       {{{6, 0}, {3.4f, 5}, {1.6f, 10}, {3.4f, 13.6f}, {6.8f, 13.4f}, {8.2f, 10.4f}, {6.2f, 8},
          {3, 8.8f}, {1.8f, 11}}},
       {{{8.2f, 1.6f}, {5.4f, 0}, {2.4f, 3}, {1.3f, 8}, {2.4f, 12.6f}, {5.4f, 14}, {8.4f, 11.6f},
          {7.6f, 8.2f}, {4.6f, 7.2f}, {1.8f, 9.4f}}}},
      // 7: plain; with a bar; with a serif; round
      {{{{1.2f, 0.6f}, {8.8f, 0.4f, kCorner}, {6.4f, 6}, {4, 14}}},
       {{{1.2f, 0.6f}, {8.8f, 0.4f, kCorner}, {6.4f, 6}, {4, 14}},
        {{3, 7.4f}, {8.4f, 6.8f}}},
       {{{1.3f, 2.8f}, {1.6f, 0.6f, kCorner}, {5, 1}, {8.8f, 0.4f, kCorner}, {5.6f, 7},
          {4.6f, 14}}},
       {{{1, 1.2f}, {4.5f, 0.2f}, {8.4f, 1.4f}, {6.6f, 6.8f}, {4.6f, 14}}}},
      // 8: in one stroke; as two circles; from the upper right
      {{{{7.6f, 1.8f}, {4.8f, 0}, {2, 2.2f}, {3.4f, 5.4f}, {6.6f, 8}, {8.2f, 11.2f}, {5, 14},
          {1.7f, 11.4f}, {3.6f, 8}, {6.8f, 5.2f}, {8, 2.4f}, {6.4f, 0.4f}}},
       {{{5, 0}, {2.2f, 1.6f}, {2.2f, 4.8f}, {5, 6.4f}, {7.8f, 4.8f}, {7.8f, 1.6f}, {5, 0}},
        {{5, 6.4f}, {1.6f, 8.4f}, {1.4f, 12}, {5, 14}, {8.6f, 12}, {8.4f, 8.4f}, {5, 6.4f}}},
       {{{8.2f, 0.6f}, {4.6f, 0.4f}, {2.2f, 2.8f}, {4, 6}, {7.2f, 8.8f}, {7.8f, 12}, {5, 14},
          {2.2f, 12}, {3, 8.8f}, {6, 5.6f}, {8.4f, 1}}}},
      // 9: round; with a straight leg; with a hook
      {{{{7.8f, 2.4f}, {5, 0}, {2, 2}, {2, 5.6f}, {4.8f, 7.2f}, {7.6f, 5}, {8, 2.2f}, {8, 7},
          {6.6f, 11}, {3.6f, 14}}},
       {{{8, 1.6f}, {4.6f, 0}, {1.8f, 2.4f}, {2.4f, 6}, {5.4f, 6.8f}, {8, 3.4f},
          {8.2f, 1.2f, kCorner}, {7.6f, 7.5f}, {7.2f, 14}}},
       {{{8, 2}, {5, 0}, {2, 2.2f}, {2.4f, 5.8f}, {5.2f, 7}, {7.8f, 4.2f}, {8.1f, 2, kCorner},
          {8.2f, 7}, {7.6f, 12}, {5, 14}, {2, 12.8f}}}},
  }};
  // clang-format on
  return styles[static_cast<size_t>(digit)];
}

// Unfinished image with ink from 0 to 1.
class Canvas {
 public:
  // Inks all pixels within `radius` of the line from a to b, with an edge that fades over `fade`
  // pixels.
  void DrawSegment(Point a, Point b, float radius, float fade, float ink) {
    const float reach = radius + 0.5f * fade;
    const Point ab = b - a;
    const float length2 = ab.x * ab.x + ab.y * ab.y;
    const float per_length2 = length2 > 1e-6f ? 1 / length2 : 0;
    const float per_fade = 1 / fade;
    const auto [left, right] = Range(std::min(a.x, b.x) - reach, std::max(a.x, b.x) + reach);
    const auto [top, bottom] = Range(std::min(a.y, b.y) - reach, std::max(a.y, b.y) + reach);
    for (int row = top; row < bottom; ++row) {
      const float y = static_cast<float>(row) - a.y;
      for (int column = left; column < right; ++column) {
        const float x = static_cast<float>(column) - a.x;
        const float along = std::clamp((x * ab.x + y * ab.y) * per_length2, 0.0f, 1.0f);
        const float dx = x - along * ab.x;
        const float dy = y - along * ab.y;
        const float distance = std::sqrt(dx * dx + dy * dy);
        const float value = ink * std::clamp((reach - distance) * per_fade, 0.0f, 1.0f);
        float& pixel = pixels_[Index(row, column)];
        pixel = std::max(pixel, value);
      }
    }
  }

  // Removes the ink from a rectangle.
  void Erase(Point corner, Point size) {
    const auto [left, right] = Range(corner.x, corner.x + size.x);
    const auto [top, bottom] = Range(corner.y, corner.y + size.y);
    for (int row = top; row < bottom; ++row) {
      for (int column = left; column < right; ++column) pixels_[Index(row, column)] = 0;
    }
  }

  // Blurs with the weights 1 2 1 in each direction; `amount` (0 to 1) is the fraction of ink that
  // spreads. Border pixels receive none.
  void Blur(float amount) {
    std::array<float, kSide * kSide> rows{};
    for (int row = 0; row < kSide; ++row) {
      for (int column = 1; column < kSide - 1; ++column) {
        const size_t i = Index(row, column);
        rows[i] = 0.25f * (pixels_[i - 1] + pixels_[i + 1]) + 0.5f * pixels_[i];
      }
    }
    for (int row = 1; row < kSide - 1; ++row) {
      for (int column = 0; column < kSide; ++column) {
        const size_t i = Index(row, column);
        const float blurred = 0.25f * (rows[i - kSide] + rows[i + kSide]) + 0.5f * rows[i];
        pixels_[i] = pixels_[i] + amount * (blurred - pixels_[i]);
      }
    }
  }

  // Adds noise of standard deviation `noise` to each pixel and writes the pixels as bytes.
  void Write(Random& random, float noise, std::span<uint8_t, kSide * kSide> bytes) const {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const float value = pixels_[i] + noise * random.Normal();
      bytes[i] = static_cast<uint8_t>(std::clamp(value, 0.0f, 1.0f) * 255 + 0.5f);
    }
  }

 private:
  // Returns the integers of [low, high], clipped to the canvas, as [first, last).
  static std::pair<int, int> Range(float low, float high) {
    constexpr float kEnd = kSide;
    const int first = static_cast<int>(std::clamp(low, 0.0f, kEnd));
    const int last = static_cast<int>(std::clamp(high + 1, 0.0f, kEnd));
    return {first, last};
  }
  static size_t Index(int row, int column) { return static_cast<size_t>(row * kSide + column); }

  std::array<float, kSide * kSide> pixels_{};
};

// Map of one writer from the box to the canvas: bends, slants, scales and rotates.
class Pose {
 public:
  explicit Pose(Random& random) {
    bow_ = 0.10f * random.Normal();
    taper_ = 0.10f * random.Normal();
    sag_ = 0.06f * random.Normal();
    const float height = random.Uniform(7.2f, 10.4f);  // half of the box, in pixels
    const float width = height * random.Uniform(0.50f, 0.85f);
    const float slant = 0.24f * random.Normal();
    const float tangent = 0.16f * random.Normal();  // of the digit's rotation angle
    const float cosine = 1 / std::sqrt(1 + tangent * tangent);
    const float sine = tangent * cosine;
    xx_ = cosine * width;
    xy_ = (cosine * slant - sine) * height;
    yx_ = sine * width;
    yy_ = (sine * slant + cosine) * height;
    centre_.x = 13.5f + 1.2f * random.Normal();
    centre_.y = 13.5f + 1.2f * random.Normal();
  }

  Point operator()(Point p) const {
    const float u = (p.x - 5) * 0.2f;
    const float v = (p.y - 7) * (1 / 7.0f);
    const float x = u + bow_ * v * v + taper_ * u * v;
    const float y = v + sag_ * u * u;
    return {centre_.x + xx_ * x + xy_ * y, centre_.y + yx_ * x + yy_ * y};
  }

 private:
  float bow_, taper_, sag_;
  float xx_, xy_, yx_, yy_;
  Point centre_;
};

struct Pen {
  float radius, fade, ink;
};

// Draws a cubic Hermite curve through the slightly moved knots of a stroke.
void DrawStroke(const Stroke& stroke, const Pose& pose, const Pen& pen, Random& random,
                Canvas& canvas) {
  constexpr int kSteps = 4;  // segments between two knots
  constexpr float kJitter = 0.46f;
  const size_t count = stroke.size();
  std::vector<Point> points(count);
  for (size_t i = 0; i < count; ++i) {
    const float x = stroke[i].x + kJitter * random.Normal();
    const float y = stroke[i].y + kJitter * random.Normal();
    points[i] = pose({x, y});
  }
  const float first_pressure = random.Uniform(0.75f, 1.15f);
  const float last_pressure = random.Uniform(0.75f, 1.15f);
  const auto sharp = [&](size_t i) { return i == 0 || i + 1 == count || stroke[i].corner; };
  for (size_t i = 0; i + 1 < count; ++i) {
    const Point chord = points[i + 1] - points[i];
    const Point leave = sharp(i) ? chord : 0.5f * (points[i + 1] - points[i - 1]);
    const Point arrive = sharp(i + 1) ? chord : 0.5f * (points[i + 2] - points[i]);
    Point from = points[i];
    for (int step = 1; step <= kSteps; ++step) {
      const float t = static_cast<float>(step) / kSteps;
      const float s = 1 - t;
      const Point to =
          points[i] + (t * t * (3 - 2 * t)) * chord + (t * s * s) * leave - (t * t * s) * arrive;
      const float done = (static_cast<float>(i) + t) / static_cast<float>(count - 1);
      const float pressure = first_pressure + done * (last_pressure - first_pressure);
      canvas.DrawSegment(from, to, pen.radius * pressure, pen.fade, pen.ink);
      from = to;
    }
  }
}

void DrawDigit(int digit, Random& random, std::span<uint8_t, kSide * kSide> bytes) {
  const std::vector<Style>& styles = Styles(digit);
  const Style& style = styles[static_cast<size_t>(random.Below(static_cast<int>(styles.size())))];
  const Pose pose(random);
  Pen pen;
  pen.radius = random.Uniform(0.65f, 1.6f);
  pen.fade = random.Uniform(1.0f, 1.8f);
  pen.ink = random.Uniform(0.75f, 1.05f);
  Canvas canvas;
  for (const Stroke& stroke : style) DrawStroke(stroke, pose, pen, random, canvas);
  if (random.Chance(0.15f)) {  // a slip of the pen
    const Point from{random.Uniform(2, 25), random.Uniform(2, 25)};
    const Point to{from.x + 5 * random.Normal(), from.y + 5 * random.Normal()};
    canvas.DrawSegment(from, to, 0.7f * pen.radius, pen.fade, 0.8f * pen.ink);
  }
  if (random.Chance(0.20f)) {  // a spot without ink
    const Point corner{random.Uniform(5, 20), random.Uniform(5, 20)};
    const Point size{random.Uniform(1, 4), random.Uniform(1, 4)};
    canvas.Erase(corner, size);
  }
  canvas.Blur(random.Uniform(0, 0.7f));
  canvas.Write(random, random.Uniform(0.01f, 0.08f), bytes);
}

Images DrawSplit(DrawnSplit split, int64_t count, int64_t seed) {
  constexpr int64_t kPixels = kSide * kSide;
  Images images{.count = count, .height = kSide, .width = kSide};
  images.pixels.resize(static_cast<size_t>(count * kPixels));
  images.labels.resize(static_cast<size_t>(count));
  const auto label_stream = 2 * static_cast<uint64_t>(split);
  std::array<uint8_t, kClasses> order;
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<uint64_t>(i);
    if (index % kClasses == 0) {
      std::iota(order.begin(), order.end(), uint8_t{0});
      Random random(static_cast<uint64_t>(seed), label_stream, index / kClasses);
      for (size_t last = kClasses - 1; last > 0; --last) {
        std::swap(order[last],
                  order[static_cast<size_t>(random.Below(static_cast<int>(last + 1)))]);
      }
    }
    images.labels[index] = order[index % kClasses];
    Random random(static_cast<uint64_t>(seed), label_stream + 1, index);
    DrawDigit(images.labels[index], random,
              std::span(images.pixels).subspan(index * kPixels).first<kPixels>());
  }
  return images;
}

}  // namespace

ImageSet DrawImages(std::string_view function, const Drawing& drawing,
                    Images (*draw)(DrawnSplit, int64_t count, int64_t seed),
                    const std::string& name, std::string_view what) {
  for (const auto& [split, count] : {std::pair("train", drawing.train), {"test", drawing.test}}) {
    if (count < 0 || count > kMaxDrawn) {
      throw UsageError(fmt::format("[{}] {} must be 0 to {} images, got {}", function, split,
                                   FormatInteger(kMaxDrawn), FormatInteger(count)));
    }
  }
  ImageSet set;
  set.train = draw(DrawnSplit::kTrain, drawing.train, drawing.seed);
  set.test = draw(DrawnSplit::kTest, drawing.test, drawing.seed);
  set.name = name;
  set.source = "embedded";
  set.description =
      fmt::format("{}: {} training and {} test images, drawing seed {}", what,
                  FormatInteger(drawing.train), FormatInteger(drawing.test), drawing.seed);
  set.sha256 = HashImages(set.train, set.test);
  return set;
}

ImageSet DrawDigits(const Drawing& drawing) {
  return DrawImages("DrawDigits", drawing, DrawSplit, "drawn digits",
                    "digits drawn by planish (not MNIST)");
}

}  // namespace planish::lab
