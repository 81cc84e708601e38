#include "lab/tasks/attentive-reader/attention_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "lab/base/escape.h"
#include "lab/run/results.h"

namespace planish::lab {

namespace {

// Pixels. Browsers' monospaced fonts have characters of .6 of their height. Words are stretched to
// that, so that rectangles fit any font.
constexpr double kFont = 15, kAdvance = 9, kLine = 26, kWidth = 720, kMargin = 10;
constexpr double kMinShare = 0.05;

// Returns the number of characters in UTF-8.
double Characters(const std::string& text) {
  return static_cast<double>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string AttentionPicture(const std::vector<std::string>& words,
                             const std::vector<double>& shares) {
  const double largest = shares.empty() ? 1 : std::max(std::ranges::max(shares), 1e-9);
  double x = kMargin, y = kMargin;
  std::string body;
  for (size_t i = 0; i < words.size(); ++i) {
    const double width = Characters(words[i]) * kAdvance;
    if (x > kMargin && x + width > kWidth - kMargin) {
      x = kMargin;
      y += kLine;
    }
    body += fmt::format(
        "<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" fill=\"#e08a00\" "
        "fill-opacity=\"{:.3f}\"/><text x=\"{:g}\" y=\"{:g}\" textLength=\"{:g}\">{}</text>",
        x - 3, y, width + 6, kLine - 4, shares[i] / largest, x, y + 16, width,
        EscapedXml(words[i]));
    x += width + kAdvance;
  }
  return fmt::format(
      "{}width=\"{:g}\" height=\"{:g}\" viewBox=\"0 0 {:g} {:g}\" font-family=\"monospace\" "
      "font-size=\"{:g}\"><rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>{}</svg>",
      kSvgBegin, kWidth, y + kLine + kMargin, kWidth, y + kLine + kMargin, kFont, body);
}

std::string AttentionText(const std::vector<std::string>& words,
                          const std::vector<double>& shares) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i > 0 ? " " : "") + words[i];
    if (shares[i] >= kMinShare) text += fmt::format(" [{:.0f}%]", 100 * shares[i]);
  }
  return text;
}

}  // namespace planish::lab
