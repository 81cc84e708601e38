#include "lab/tasks/convnet/shapes.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <utility>

namespace planish::lab {

namespace {

constexpr int kSide = 28;
constexpr int kClasses = 10;
constexpr int kUnit = 16;  // subpixels per pixel, the unit of positions and sizes

// Returns true if the shape of class `label` and radius `r` covers the point (x, y) relative to its
// centre.
bool Covers(int label, int x, int y, int r) {
  const int far = std::max(std::abs(x), std::abs(y)), square = x * x + y * y;
  switch (label) {
    case 0:  // disc
      return square <= r * r;
    case 1:  // ring
      return square <= r * r && 4 * square >= r * r;
    case 2:  // square
      return 8 * far <= 7 * r;
    case 3:  // frame
      return 8 * far <= 7 * r && 2 * far >= r;
    case 4:  // diamond
      return 4 * (std::abs(x) + std::abs(y)) <= 5 * r;
    case 5:  // plus
      return far <= r && 3 * std::min(std::abs(x), std::abs(y)) <= r;
    case 6:  // cross
      return far <= r && 2 * std::min(std::abs(x - y), std::abs(x + y)) <= r;
    case 7:  // bars
      return far <= r && (5 * (y + r) / (2 * r)) % 2 == 0;
    case 8:  // triangle
      return std::abs(y) <= r && 2 * std::abs(x) <= y + r;
    default:  // crescent
      return square <= r * r && (x - r / 2) * (x - r / 2) + y * y > r * r * 3 / 4;
  }
}

class Brush {
 public:
  explicit Brush(uint64_t seed) : random_(seed) {}

  void Draw(int label, uint8_t* pixels) {
    const int r = Between(6 * kUnit, 13 * kUnit);
    const int x0 = Between(10 * kUnit, 18 * kUnit), y0 = Between(10 * kUnit, 18 * kUnit);
    const int tone = Between(110, 230), ground = Between(0, 60);
    const int slope_x = Between(-3, 3), slope_y = Between(-3, 3), noise = Between(4, 40);
    for (int row = 0; row < kSide; ++row) {
      for (int column = 0; column < kSide; ++column) {
        int covered = 0;  // of four points in the pixel
        for (const int dy : {4, 12}) {
          for (const int dx : {4, 12}) {
            covered += Covers(label, column * kUnit + dx - x0, row * kUnit + dy - y0, r);
          }
        }
        const int shade = tone + slope_x * (column - kSide / 2) + slope_y * (row - kSide / 2);
        const int value = (covered * shade + (4 - covered) * ground) / 4 + Between(-noise, noise);
        pixels[row * kSide + column] = static_cast<uint8_t>(std::clamp(value, 0, 255));
      }
    }
  }

 private:
  // Returns a random integer in [low, high]. The standard's distributions differ between libraries.
  int Between(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  std::mt19937_64 random_;
};

Images DrawSplit(DrawnSplit split, int64_t count, int64_t seed) {
  Images images{.count = count, .height = kSide, .width = kSide};
  images.pixels.resize(static_cast<size_t>(count * kSide * kSide));
  images.labels.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<uint64_t>(i);
    const int label = static_cast<int>(i % kClasses);
    images.labels[index] = static_cast<uint8_t>(label);
    Brush brush((static_cast<uint64_t>(seed) * 2 + static_cast<uint64_t>(split)) *
                    uint64_t{1'000'003} +
                index);
    brush.Draw(label, images.pixels.data() + i * kSide * kSide);
  }
  return images;
}

}  // namespace

ImageSet DrawShapes(const Drawing& drawing) {
  return DrawImages("DrawShapes", drawing, DrawSplit, "drawn shapes",
                    "ten grey shapes drawn by planish");
}

}  // namespace planish::lab
