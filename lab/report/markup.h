#ifndef PLANISH_LAB_REPORT_MARKUP_H_
#define PLANISH_LAB_REPORT_MARKUP_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace planish::lab {

/// `text` as valid UTF-8 without control characters other than tab and line end; whatever else is
/// in it becomes U+FFFD.
std::string CleanText(std::string_view text);

/// Like CleanText, and replaces tabs and line feeds by spaces.
std::string CleanLine(std::string_view text);

/// CleanText with & < > " ' escaped for HTML and SVG, text and attributes alike.
std::string Escape(std::string_view text);

/// A piece of HTML or SVG. Text enters it escaped, so that a Markup is always well-formed.
class Markup {
 public:
  Markup() = default;
  Markup(std::string_view text) : html_(Escape(text)) {}  // NOLINT: text is markup, once escaped
  Markup(const char* text) : Markup(std::string_view(text)) {}         // NOLINT
  Markup(const std::string& text) : Markup(std::string_view(text)) {}  // NOLINT

  Markup& operator+=(const Markup& other) {
    html_ += other.html_;
    return *this;
  }
  friend Markup operator+(Markup a, const Markup& b) { return a += b; }
  bool empty() const { return html_.empty(); }
  const std::string& html() const { return html_; }

  /// `html` as it is: for style sheets and scripts of our own.
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

/// An element with attributes and content. Void elements of HTML have no end tag; all others have.
Markup Element(std::string_view name, const Attributes& attributes, const Markup& content = {});

/// Element("p", {}, "a", Element(...), "b"): content in pieces.
template <class... Pieces>
Markup Tag(std::string_view name, const Attributes& attributes, const Pieces&... pieces) {
  Markup content;
  ((content += Markup(pieces)), ...);
  return Element(name, attributes, content);
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_MARKUP_H_
