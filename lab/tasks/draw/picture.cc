#include "lab/tasks/draw/picture.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/base/base64.h"
#include "lab/data/png.h"
#include "lab/run/results.h"

namespace planish::lab {

namespace {

constexpr int64_t kGap = 4;    // pixels of paper between images
constexpr int64_t kScale = 2;  // on the page
// Grey levels: visually enough, and half the bytes of all 256.
constexpr double kLevels = 15;

}  // namespace

std::vector<int64_t> ShownGlimpses(int64_t glimpses, int64_t max_count) {
  const int64_t count = std::min(glimpses, max_count);
  std::vector<int64_t> shown;
  for (int64_t i = 1; i <= count; ++i) shown.push_back(i * glimpses / count);
  return shown;
}

std::string DrawCanvases(const DrawModel::Drawing& drawing, const std::vector<int64_t>& shown) {
  const int64_t rows = drawing.canvases.size(1), columns = std::ssize(shown);
  const auto side =
      static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(drawing.canvases.size(2)))));
  const int64_t cell = side + kGap;
  const int64_t width = columns * cell - kGap, height = rows * cell - kGap;
  const at::Tensor ink = at::round(drawing.canvases * kLevels) * (255 / kLevels);
  at::Tensor paper = at::full({height, width}, 255, at::kByte);
  std::string windows;
  for (int64_t column = 0; column < columns; ++column) {
    const int64_t glimpse = shown[static_cast<size_t>(column)] - 1;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t x = column * cell, y = row * cell;
      paper.slice(0, y, y + side)
          .slice(1, x, x + side)
          .copy_((255 - ink[glimpse][row].view({side, side})).to(at::kByte));
      const at::Tensor window = drawing.windows[glimpse][row].to(at::kDouble);
      const auto* w = window.const_data_ptr<double>();
      // Pixel 1 is from 0 to 1. The inner drawing clips what is outside the image; long numbers
      // would only take space.
      const auto limited = [&](double value) {
        return std::clamp(value, -10.0 * static_cast<double>(side),
                          10.0 * static_cast<double>(side));
      };
      windows += fmt::format(
          R"(<svg x="{}" y="{}" width="{}" height="{}"><rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" stroke-width="{:.1f}"/></svg>)",
          x, y, side, side, limited(w[0] - w[2] / 2 - 0.5), limited(w[1] - w[2] / 2 - 0.5),
          limited(w[2]), limited(w[2]), std::clamp(w[3], 0.2, 4.0));
    }
  }
  const auto* bytes = paper.const_data_ptr<uint8_t>();
  const std::string png = EncodePng({bytes, static_cast<size_t>(paper.numel())}, width);
  return fmt::format(
      R"({}width="{}" height="{}" viewBox="0 0 {} {}"><image width="{}" height="{}" image-rendering="pixelated" href="data:image/png;base64,{}"/><g fill="none" stroke="#d62728" stroke-opacity="0.6">{}</g></svg>)",
      kSvgBegin, kScale * width, kScale * height, width, height, width, height, Base64(png),
      windows);
}

}  // namespace planish::lab
