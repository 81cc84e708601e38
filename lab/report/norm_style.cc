#include "lab/report/norm_style.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "lab/terminal/layout.h"

namespace planish::lab {
namespace {

constexpr std::array kColours = {
    Colour{"#353535", "#f6f6f6", 246}, Colour{"#dd6819", "#ee854c", 173},
    Colour{"#3a6cb3", "#67b2e7", 68},  Colour{"#006d42", "#42d5b3", 36},
    Colour{"#962d72", "#c16da6", 132}, Colour{"#785300", "#f6c045", 136},
    Colour{"#288dab", "#80d1e2", 74},  Colour{"#6137ba", "#9c8dff", 98},
    Colour{"#d6526a", "#e57980", 168},
};

constexpr std::array<std::string_view, 7> kDashes = {"",    "7 3",  "2 2.5",      "9 3 2 3",
                                                     "4 2", "12 4", "9 2 2 2 2 2"};

constexpr std::array<std::string_view, 8> kMarkers = {"●", "■", "▲", "◆", "▼", "✚", "✖", "★"};

constexpr NormStyle kStyles[] = {
    {"none", {0, 0, 0}},
    {"lstm", {0, 1, 1}},
    {"weight", {0, 2, 2}},
    {"torch-lstm", {0, 3, 3}},
    {"layer", {1, 0, 1}},
    {"ln-lstm", {1, 1, 2}},
    {"layer-channels", {1, 2, 3}},
    {"layer-full", {1, 3, 4}},
    {"ln-lstm-contrib", {1, 4, 5}},
    {"ln-gru-dreamer", {1, 5, 6}},
    {"batch", {2, 1, 2}},
    {"gru", {2, 2, 3}},
    {"batch-everywhere", {2, 3, 4}},
    {"bn-lstm", {2, 4, 5}},
    {"torch-gru", {2, 5, 6}},
    {"rms", {3, 4, 3}},
    {"ln-gru", {3, 5, 4}},
    {"group", {3, 6, 5}},
    {"online-0.1", {3, 0, 6}},
    {"bn-gru", {3, 1, 7}},
    {"ada", {4, 5, 4}},
    {"rnn", {4, 6, 5}},
    {"ada-as-coded", {4, 0, 6}},
    {"ln-lstm-tfa", {4, 1, 7}},
    {"online-0.03", {4, 2, 0}},
    {"layer-simple", {5, 3, 5}},
    {"ln-rnn", {5, 4, 6}},
    {"dyt", {5, 5, 7}},
    {"ln-lstm-haste", {5, 6, 0}},
    {"online-0.3", {5, 0, 1}},
    {"detach", {6, 6, 6}},
    {"slstm", {6, 0, 7}},
    {"ln-gru-haste", {6, 1, 0}},
    {"online-1", {6, 2, 1}},
    {"rnn-relu", {6, 3, 2}},
    {"detach-mean", {7, 1, 7}},
    {"draw-lstm", {7, 2, 0}},
    {"derf", {7, 3, 1}},
    {"ln-lstm-fastrnns", {7, 4, 2}},
    {"bn-rnn", {7, 5, 3}},
    {"detach-std", {8, 4, 0}},
    {"ln-rnn-relu", {8, 5, 1}},
    {"online-0.01", {8, 6, 2}},
    {"ln-lstm-torchaudio", {8, 0, 3}},
    {"ln-lstm-tflite", {8, 1, 4}},
};

// Other ways in which the papers' theory and the modules write names.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"ln", "layer"},         {"bn", "batch"},      {"wn", "weight"},
    {"layer-norm", "layer"}, {"relu", "rnn-relu"}, {"ln-relu", "ln-rnn-relu"}};

const NormStyle* Find(std::string_view name) {
  std::string plain(name);
  std::ranges::transform(plain, plain.begin(), [](unsigned char c) {
    return c == '_' || c == ' ' ? '-' : static_cast<char>(std::tolower(c));
  });
  const auto* alias =
      std::ranges::find(kAliases, plain, &std::pair<std::string_view, std::string_view>::first);
  if (alias != std::end(kAliases)) plain = alias->second;
  const auto* found = std::ranges::find(kStyles, plain, &NormStyle::name);
  return found == std::end(kStyles) ? nullptr : found;
}

// Returns the i-th style of names that have none.
LineStyle OtherStyle(size_t i) {
  return {static_cast<int>(i % kColours.size()), static_cast<int>(i % kDashes.size()),
          static_cast<int>(i % kMarkers.size())};
}

}  // namespace

std::span<const Colour> LineColours() { return kColours; }
std::span<const std::string_view> LineDashes() { return kDashes; }
std::span<const std::string_view> LineMarkers() { return kMarkers; }
std::span<const NormStyle> NormStyles() { return kStyles; }

std::vector<LineStyle> StylesOf(const std::vector<std::string>& names) {
  std::vector<LineStyle> known;
  for (const std::string& name : names) {
    if (const NormStyle* found = Find(name)) known.push_back(found->style);
  }
  std::vector<LineStyle> styles;
  size_t next = 0;
  for (const std::string& name : names) {
    if (const NormStyle* found = Find(name)) {
      styles.push_back(found->style);
      continue;
    }
    while (std::ranges::find(known, OtherStyle(next)) != known.end()) ++next;
    styles.push_back(OtherStyle(next++));
  }
  return styles;
}

std::string TerminalMarker(const LineStyle& style, bool colour) {
  return Painted(std::string(kMarkers[static_cast<size_t>(style.marker)]),
                 fmt::format("38;5;{}", kColours[static_cast<size_t>(style.colour)].terminal),
                 colour);
}

std::string ColourSheet() {
  std::string light, dark;
  for (size_t i = 0; i < kColours.size(); ++i) {
    light += fmt::format("--c{}: {}; ", i, kColours[i].light);
    dark += fmt::format("--c{}: {}; ", i, kColours[i].dark);
  }
  std::string sheet = fmt::format(
      ":root {{ --page: {}; {}}}\n@media screen and (prefers-color-scheme: dark) {{ "
      ":root {{ --page: {}; {}}} }}\n",
      kLightPage, light, kDarkPage, dark);
  for (size_t i = 0; i < kColours.size(); ++i) {
    sheet += fmt::format(".c{0} {{ --c: var(--c{0}); }}\n", i);
  }
  return sheet;
}

}  // namespace planish::lab
