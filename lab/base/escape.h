#ifndef PLANISH_LAB_BASE_ESCAPE_H_
#define PLANISH_LAB_BASE_ESCAPE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// Escapes for text of files and paths in messages, and for XML.
namespace planish::lab {

/// Returns the length of the well-formed UTF-8 sequence at the start of `text`, or 0 if there is
/// none. Well-formed is defined by RFC 3629: no overlong forms, surrogates or values above
/// U+10FFFF.
inline size_t Utf8SequenceLength(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto within = [&](size_t i, int low, int high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  // Table 3-7 of the Unicode standard.
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return within(1, 0x80, 0xbf) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const int low = first == 0xe0 ? 0xa0 : 0x80, high = first == 0xed ? 0x9f : 0xbf;
    return within(1, low, high) && within(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const int low = first == 0xf0 ? 0x90 : 0x80, high = first == 0xf4 ? 0x8f : 0xbf;
    return within(1, low, high) && within(2, 0x80, 0xbf) && within(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

/// Returns true if a sequence of Utf8SequenceLength is a control character: U+0000 to U+001F,
/// U+007F to U+009F.
inline bool IsControlCharacter(std::string_view sequence) {
  const auto first = static_cast<uint8_t>(sequence[0]);
  if (sequence.size() == 1) return first < 0x20 || first == 0x7f;
  return first == 0xc2 && static_cast<uint8_t>(sequence[1]) < 0xa0;
}

/// Returns `text` with control characters and invalid UTF-8 bytes as \xNN. With `keep_lines`, tabs
/// and line ends, LF or CR LF, stay. Escaping the result again leaves it unchanged.
inline std::string Escaped(std::string_view text, bool keep_lines = false) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string escaped;
  escaped.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    const std::string_view sequence = text.substr(0, length == 0 ? 1 : length);
    const bool kept =
        keep_lines && (sequence == "\n" || sequence == "\t" || text.starts_with("\r\n"));
    if (kept || (length > 0 && !IsControlCharacter(sequence))) {
      escaped += sequence;
    } else {
      for (const char c : sequence) {
        const auto value = static_cast<uint8_t>(c);
        escaped += "\\x";
        escaped += kDigits[value >> 4];
        escaped += kDigits[value & 15];
      }
    }
    text.remove_prefix(sequence.size());
  }
  return escaped;
}

/// Returns Escaped(text) in double quotes. A text of more than `max_bytes` bytes is cut at a
/// character boundary and ends in "...".
inline std::string Quoted(std::string_view text, size_t max_bytes = 40) {
  const bool cut = text.size() > max_bytes;
  size_t end = cut ? max_bytes : text.size();
  while (cut && end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80 &&
         end + 3 > max_bytes) {
    --end;
  }
  // Appends to a string of its own: gcc 12 warns falsely about a literal + a temporary string.
  std::string quoted = "\"";
  quoted += Escaped(text.substr(0, end));
  return quoted += cut ? "...\"" : "\"";
}

/// Returns `text` as content of an XML or HTML element: &, < and > become entities. With `quotes`,
/// " and ' do too, as in attributes.
inline std::string EscapedXml(std::string_view text, bool quotes = false) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else if (c == '>') {
      escaped += "&gt;";
    } else if (quotes && c == '"') {
      escaped += "&quot;";
    } else if (quotes && c == '\'') {
      escaped += "&#39;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_BASE_ESCAPE_H_
