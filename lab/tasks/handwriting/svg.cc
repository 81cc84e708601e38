#include "lab/tasks/handwriting/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "lab/base/escape.h"
#include "lab/run/results.h"

namespace planish::lab {

namespace {

constexpr double kMargin = 8, kPen = 1.6;

// Returns `text` for a <title>. XML has no control characters except tab.
std::string TitleOf(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\t'; }, ' ');
  return EscapedXml(text);
}

}  // namespace

std::string StrokesSvg(const std::vector<PenPoint>& points, double scale, const std::string& text) {
  double left = 0, right = 0, top = 0, bottom = 0;
  bool is_first = true;
  std::string path;
  bool starts = true;
  for (const PenPoint& point : points) {
    const double x = point.x * scale, y = point.y * scale;
    if (!std::isfinite(x) || !std::isfinite(y)) break;
    fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", starts ? "M" : "L", x, y);
    // A stroke of one point is a dot.
    if (starts && point.lifts) path += "h0";
    starts = point.lifts;
    left = is_first ? x : std::min(left, x);
    right = is_first ? x : std::max(right, x);
    top = is_first ? y : std::min(top, y);
    bottom = is_first ? y : std::max(bottom, y);
    is_first = false;
  }
  const double width = right - left + 2 * kMargin, height = bottom - top + 2 * kMargin;
  return fmt::format(
      "{svg}width=\"{width:.0f}\" height=\"{height:.0f}\" viewBox=\"{x:.1f} {y:.1f} {width:.1f} "
      "{height:.1f}\"><title>{title}</title><rect x=\"{x:.1f}\" y=\"{y:.1f}\" "
      "width=\"{width:.1f}\" height=\"{height:.1f}\" fill=\"#fff\"/><path d=\"{path}\" "
      "fill=\"none\" stroke=\"#1a1a6e\" stroke-width=\"{pen}\" stroke-linecap=\"round\" "
      "stroke-linejoin=\"round\"/></svg>",
      fmt::arg("svg", kSvgBegin), fmt::arg("width", width), fmt::arg("height", height),
      fmt::arg("x", left - kMargin), fmt::arg("y", top - kMargin), fmt::arg("title", TitleOf(text)),
      fmt::arg("path", path), fmt::arg("pen", kPen));
}

}  // namespace planish::lab
