#include "lab/report/norm_style.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "lab/terminal/layout.h"

namespace planish::lab {
namespace {

using Rgb = std::array<double, 3>;

// Returns the linear components of "#rrggbb" (IEC 61966-2-1).
Rgb Linear(std::string_view hex) {
  Rgb rgb;
  for (size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(std::string(hex.substr(1 + 2 * i, 2)), nullptr, 16) / 255.0;
    rgb[i] = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  }
  return rgb;
}

Rgb Product(const std::array<Rgb, 3>& matrix, const Rgb& v) {
  Rgb result{};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) result[i] += matrix[i][j] * v[j];
  }
  return result;
}

// CIE XYZ of linear sRGB.
constexpr std::array<Rgb, 3> kXyz = {{{0.4124564, 0.3575761, 0.1804375},
                                      {0.2126729, 0.7151522, 0.0721750},
                                      {0.0193339, 0.1191920, 0.9503041}}};

// CIE 1976 L*a*b* with the white of sRGB.
Rgb Lab(const Rgb& linear) {
  const Rgb white = Product(kXyz, {1, 1, 1});
  Rgb f = Product(kXyz, linear);
  for (size_t i = 0; i < 3; ++i) {
    const double t = std::max(f[i], 0.0) / white[i];
    constexpr double kEdge = 6.0 / 29;
    f[i] = t > kEdge * kEdge * kEdge ? std::cbrt(t) : t / (3 * kEdge * kEdge) + 4.0 / 29;
  }
  return {116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])};
}

double Distance(const Rgb& a, const Rgb& b) {
  return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

double Luminance(std::string_view hex) { return Product(kXyz, Linear(hex))[1]; }

double ContrastOf(std::string_view a, std::string_view b) {
  const auto [low, high] = std::minmax(Luminance(a), Luminance(b));
  return (high + 0.05) / (low + 0.05);
}

// Vision, as a matrix of linear sRGB: full, and both red-green dichromacies (Machado, Oliveira &
// Fernandes 2009, severity 1), which 2% of men have.
constexpr std::array<std::array<Rgb, 3>, 3> kVisions = {{
    {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
    {{{0.152286, 1.052583, -0.204868},
      {0.114503, 0.786281, 0.099216},
      {-0.003882, -0.048116, 1.051998}}},
    {{{0.367322, 0.860646, -0.227968},
      {0.280085, 0.672501, 0.047413},
      {-0.011820, 0.042940, 0.968881}}},
}};

// Just noticeable for large patches side by side is 2.3 (Mahy et al. 1994). Thin lines that are
// apart need several times this; 15 is six times.
constexpr double kMinDistance = 15;

// WCAG 2.1, 1.4.11: graphical objects have a contrast of 3 with what is next to them.
constexpr double kMinContrast = 3;

TEST(LineColours, ContrastWithThePage) {
  for (const Colour& colour : LineColours()) {
    EXPECT_GE(ContrastOf(colour.light, kLightPage), kMinContrast) << colour.light;
    EXPECT_GE(ContrastOf(colour.dark, kDarkPage), kMinContrast) << colour.dark;
  }
}

TEST(LineColours, DifferForDichromats) {
  for (const auto& vision : kVisions) {
    for (const bool dark : {false, true}) {
      std::vector<Rgb> seen;
      for (const Colour& colour : LineColours()) {
        Rgb linear = Product(vision, Linear(dark ? colour.dark : colour.light));
        for (double& c : linear) c = std::clamp(c, 0.0, 1.0);
        seen.push_back(Lab(linear));
      }
      for (size_t i = 0; i < seen.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          EXPECT_GE(Distance(seen[i], seen[j]), kMinDistance) << i << " and " << j << " " << dark;
        }
      }
    }
  }
}

TEST(NormStyles, NameEachNormOnce) {
  std::set<std::string_view> names;
  for (const NormStyle& norm : NormStyles()) EXPECT_TRUE(names.insert(norm.name).second);
  for (const char* name : {"none", "batch", "layer", "layer-simple", "rms", "detach", "detach-mean",
                           "detach-std", "ada", "ada-as-coded", "group", "weight", "dyt", "derf"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(NormStyles, OfOneColourDifferInDashAndMarker) {
  for (const NormStyle& a : NormStyles()) {
    ASSERT_LT(a.style.colour, std::ssize(LineColours()));
    ASSERT_LT(a.style.dash, std::ssize(LineDashes()));
    ASSERT_LT(a.style.marker, std::ssize(LineMarkers()));
    for (const NormStyle& b : NormStyles()) {
      if (&a == &b || a.style.colour != b.style.colour) continue;
      EXPECT_NE(a.style.dash, b.style.dash) << a.name << " and " << b.name;
      EXPECT_NE(a.style.marker, b.style.marker) << a.name << " and " << b.name;
    }
  }
}

TEST(StylesOf, DoNotDependOnTheOtherNames) {
  const LineStyle layer = StylesOf({"layer"})[0];
  EXPECT_EQ(StylesOf({"none", "batch", "layer"})[2], layer);
  EXPECT_EQ(StylesOf({"x", "LN", "Layer_Norm"})[1], layer);
  EXPECT_EQ(StylesOf({"x", "LN", "Layer_Norm"})[2], layer);
  EXPECT_EQ(StylesOf({"LN-LSTM"}), StylesOf({"ln_lstm"}));
  EXPECT_THAT(StylesOf({}), testing::IsEmpty());
}

TEST(StylesOf, OtherNamesGetStylesOfTheirOwn) {
  std::vector<std::string> names = {"none", "layer"};
  for (int i = 0; i < 60; ++i) names.push_back(std::to_string(i));
  const std::vector<LineStyle> styles = StylesOf(names);
  for (size_t i = 0; i < styles.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(styles[i], styles[j]) << names[i] << " " << names[j];
  }
}

TEST(TerminalMarker, IsOneColumnAndPaintedOnlyInColour) {
  for (const NormStyle& norm : NormStyles()) {
    EXPECT_EQ(Width(TerminalMarker(norm.style, false)), 1u);
    EXPECT_THAT(TerminalMarker(norm.style, true), testing::StartsWith("\x1b[38;5;"));
  }
}

TEST(ColourSheet, HasEveryColourInBothSchemes) {
  const std::string sheet = ColourSheet();
  for (const Colour& colour : LineColours()) {
    EXPECT_THAT(sheet, testing::HasSubstr(std::string(colour.light)));
    EXPECT_THAT(sheet, testing::HasSubstr(std::string(colour.dark)));
  }
}

}  // namespace
}  // namespace planish::lab
