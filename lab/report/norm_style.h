#ifndef PLANISH_LAB_REPORT_NORM_STYLE_H_
#define PLANISH_LAB_REPORT_NORM_STYLE_H_

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The line style of each norm and cell, for charts, tables, the terminal and the documentation.
namespace planish::lab {

/// Colour of lines on a light and on a dark page, and its index among a terminal's 256 colours.
struct Colour {
  std::string_view light;  ///< "#rrggbb"
  std::string_view dark;
  int terminal = 0;
};

/// Colours of lines. norm_style_test.cc checks their contrast with the page, and that people with
/// protanopia or deuteranopia can tell them apart.
std::span<const Colour> LineColours();

/// Backgrounds of the page.
inline constexpr std::string_view kLightPage = "#ffffff";
inline constexpr std::string_view kDarkPage = "#14171a";

/// Dashes of lines, as SVG's stroke-dasharray; empty: solid.
std::span<const std::string_view> LineDashes();

/// Characters that show the markers in a terminal, in the order of MarkerPath (plot.cc).
std::span<const std::string_view> LineMarkers();

/// Indices into LineColours, LineDashes and LineMarkers.
struct LineStyle {
  int colour = 0;
  int dash = 0;
  int marker = 0;
  bool operator==(const LineStyle&) const = default;
};

/// Norm or recurrent cell with its style.
struct NormStyle {
  std::string_view name;  ///< in the lab: "layer-simple"
  LineStyle style;
};

/// Returns the style of every norm and cell. Those with the same colour differ in dash and marker.
std::span<const NormStyle> NormStyles();

/// Returns one style for each name. A norm or cell has its own style, also if its name is written
/// like "LN-LSTM" or "ln_lstm". Other names get the next styles that none of `names` has.
std::vector<LineStyle> StylesOf(const std::vector<std::string>& names);

/// Returns the marker of a style, painted in its colour if `colour` is set.
std::string TerminalMarker(const LineStyle& style, bool colour);

/// Returns a page's style sheet with the custom properties --c0, --c1, ... for both colour schemes.
std::string ColourSheet();

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_NORM_STYLE_H_
