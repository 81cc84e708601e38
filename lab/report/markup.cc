#include "lab/report/markup.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace planish::lab {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Length of the valid UTF-8 sequence that `text` starts with, or 0.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and code points above U+10FFFF.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) >= 0xA0)) return 0;
  if ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) >= 0x90)) return 0;
  return length;
}

bool IsControl(std::string_view sequence) {
  const auto lead = static_cast<uint8_t>(sequence[0]);
  if (sequence.size() == 1) return (lead < 0x20 && lead != '\t' && lead != '\n') || lead == 0x7F;
  return lead == 0xC2 && static_cast<uint8_t>(sequence[1]) < 0xA0;  // U+0080 to U+009F
}

}  // namespace

std::string CleanText(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0 || IsControl(text.substr(0, length))) {
      clean += kReplacement;
    } else {
      clean += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return clean;
}

std::string Escape(std::string_view text) {
  std::string escaped;
  for (const char c : CleanText(text)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

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
