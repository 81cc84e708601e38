#ifndef PLANISH_LAB_REPORT_MARKUP_H_
#define PLANISH_LAB_REPORT_MARKUP_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace planish::lab {

/// Returns `text` as valid UTF-8. Replaces control characters except tab and line feed, and invalid
/// bytes, by U+FFFD.
std::string CleanText(std::string_view text);

/// Like CleanText, but also replaces tabs and line feeds by spaces.
std::string CleanLine(std::string_view text);

/// Returns CleanText with & < > " ' escaped for text and attributes of HTML and SVG.
std::string Escape(std::string_view text);

/// Piece of HTML or SVG. Escapes text, so a Markup is always well-formed.
class Markup {
 public:
  Markup() = default;
  // NOLINTBEGIN(google-explicit-constructor): text converts to escaped Markup
  Markup(std::string_view text) : html_(Escape(text)) {}
  Markup(const char* text) : Markup(std::string_view(text)) {}
  Markup(const std::string& text) : Markup(std::string_view(text)) {}
  // NOLINTEND(google-explicit-constructor)

  Markup& operator+=(const Markup& other) {
    html_ += other.html_;
    return *this;
  }
  friend Markup operator+(Markup a, const Markup& b) { return a += b; }
  bool empty() const { return html_.empty(); }
  const std::string& html() const { return html_; }

  /// Returns `html` unescaped, for the page's own style sheets and scripts.
  static Markup Raw(std::string_view html) {
    Markup markup;
    markup.html_ = html;
    return markup;
  }

 private:
  std::string html_;
};

/// Attributes: name and value, in order.
using Attributes = std::vector<std::pair<std::string_view, std::string>>;

/// Returns an element with attributes and content. Void elements of HTML have no end tag; all
/// others have.
Markup Element(std::string_view name, const Attributes& attributes, const Markup& content = {});

/// Like Element, for content in pieces: Tag("p", {}, "a", Element(...), "b").
template <class... Pieces>
Markup Tag(std::string_view name, const Attributes& attributes, const Pieces&... pieces) {
  Markup content;
  ((content += Markup(pieces)), ...);
  return Element(name, attributes, content);
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_MARKUP_H_
