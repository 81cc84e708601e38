#include "lab/report/markup.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "lab/base/escape.h"

namespace planish::lab {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Returns true for control characters other than tab and line feed, which an HTML page cannot show.
bool IsUnprintable(std::string_view sequence) {
  return sequence != "\t" && sequence != "\n" && IsControlCharacter(sequence);
}

}  // namespace

std::string CleanText(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0 || IsUnprintable(text.substr(0, length))) {
      clean += kReplacement;
    } else {
      clean += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return clean;
}

std::string CleanLine(std::string_view text) {
  std::string clean = CleanText(text);
  std::ranges::replace_if(clean, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return clean;
}

std::string Escape(std::string_view text) { return EscapedXml(CleanText(text), /*quotes=*/true); }

Markup Element(std::string_view name, const Attributes& attributes, const Markup& content) {
  static constexpr std::array<std::string_view, 5> kVoid = {"br", "img", "input", "link", "meta"};
  std::string html = "<";
  html += name;
  for (const auto& [key, value] : attributes) {
    html += ' ';
    html += key;
    html += "=\"";
    html += Escape(value);
    html += '"';
  }
  html += '>';
  if (std::find(kVoid.begin(), kVoid.end(), name) == kVoid.end()) {
    html += content.html();
    html += "</";
    html += name;
    html += '>';
  }
  return Markup::Raw(html);
}

}  // namespace planish::lab
