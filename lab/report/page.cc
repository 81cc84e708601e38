#include "lab/report/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/base/base64.h"
#include "lab/report/assets.h"
#include "lab/report/norm_style.h"

namespace planish::lab {
namespace {

constexpr std::string_view kAppendix = "appendix";

// Returns the hash of the page's own script, as a Content-Security-Policy names it.
std::string ScriptHash() {
  const std::string hex = assets::kScriptSha256;
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return Base64(bytes);
}

Markup TopLink() {
  return Tag("p", {{"class", "top"}}, Tag("a", {{"href", "#top"}}, "Back to the top"));
}

Markup LinkTo(std::string_view id, const std::string& title) {
  return Tag("a", {{"href", "#" + std::string(id)}}, title);
}

Markup RenderTiles(const std::vector<Tile>& tiles) {
  Markup items;
  for (const Tile& tile : tiles) {
    std::string kind = tile.word;
    std::ranges::replace(kind, ' ', '-');
    items += Tag("li", {{"class", "tile " + kind}},
                 Tag("span", {{"class", "count"}}, std::to_string(tile.count)),
                 Tag("span", {{"class", "word"}}, tile.word),
                 tile.note.empty() ? Markup() : Tag("span", {{"class", "aside"}}, tile.note));
  }
  return items.empty() ? Markup() : Tag("ul", {{"class", "tiles"}}, items);
}

Markup RenderSummary(const Summary& summary) {
  Markup sentences;
  for (const std::string* sentence : {&summary.asked, &summary.found, &summary.sure}) {
    if (!sentence->empty()) sentences += Tag("p", {}, *sentence);
  }
  if (sentences.empty()) return {};
  return Tag("div", {{"class", "summary"}}, Tag("div", {{"class", "answer"}}, sentences),
             Tag("div", {{"class", "first-chart"}}, summary.chart), RenderTiles(summary.tiles));
}

Markup RenderPart(const Part& part, bool first, bool open) {
  const Markup title = Tag("h2", {}, part.title);
  const Markup source =
      part.source.empty() ? Markup() : Tag("p", {{"class", "source"}}, part.source);
  const Markup content = source + RenderSummary(part.summary) + part.body;
  const Attributes attributes = {{"id", part.id}, {"class", "part"}};
  if (first) return Tag("section", attributes, title, content, TopLink());
  Attributes fold = {{"class", "fold"}};
  if (open) fold.emplace_back("open", "");
  return Tag("section", attributes,
             Tag("details", fold, Tag("summary", {}, title), content, TopLink()));
}

Markup RenderAppendix(const std::vector<Part>& parts) {
  Markup content;
  for (const Part& part : parts) {
    if (part.details.empty()) continue;
    content += Tag("details", {{"class", "fold"}, {"id", DetailsId(part.id)}},
                   Tag("summary", {}, Tag("h3", {}, part.title)), part.details, TopLink());
  }
  if (content.empty()) return {};
  return Tag(
      "section", {{"id", std::string(kAppendix)}, {"class", "appendix"}},
      Tag("h2", {}, "Appendix: tables and settings"),
      Tag("p", {{"class", "note"}},
          Tag("label", {}, Element("input", {{"type", "checkbox"}, {"id", "print-appendix"}}),
              " Print the appendix, too")),
      content);
}

// Returns the table of contents: the parts, their sections, and the appendix.
Markup RenderContents(const std::vector<Part>& parts, bool has_appendix) {
  Markup items;
  for (size_t i = 0; i < parts.size();) {
    const Part& part = parts[i];
    size_t end = i;
    while (end < parts.size() && !part.group.empty() && parts[end].group == part.group) ++end;
    const bool grouped = end - i > 1;
    Markup inner;
    if (grouped) {
      for (size_t j = i; j < end; ++j) inner += Tag("li", {}, LinkTo(parts[j].id, parts[j].title));
    } else {
      for (const Link& link : part.links) inner += Tag("li", {}, LinkTo(link.id, link.title));
    }
    items += Tag("li", {}, LinkTo(part.id, grouped ? part.group : part.title),
                 inner.empty() ? Markup() : Tag("ul", {}, inner));
    i = grouped ? end : i + 1;
  }
  if (has_appendix) {
    Markup inner;
    for (const Part& part : parts) {
      if (!part.details.empty()) {
        inner += Tag("li", {}, LinkTo(DetailsId(part.id), part.title));
      }
    }
    items +=
        Tag("li", {}, LinkTo(kAppendix, "Appendix: tables and settings"), Tag("ul", {}, inner));
  }
  return Tag("nav", {{"class", "contents"}, {"aria-label", "Contents"}},
             Tag("details", {}, Tag("summary", {}, "Contents"), Tag("ul", {}, items)));
}

std::string RenderDocument(const std::string& title, const Markup& body) {
  const Markup head =
      Element("meta", {{"charset", "utf-8"}}) +
      Element("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}}) +
      Element("meta", {{"http-equiv", "Content-Security-Policy"},
                       {"content",
                        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src "
                        "'sha256-" +
                            ScriptHash() + "'"}}) +
      Element("meta", {{"name", "color-scheme"}, {"content", "light dark"}}) +
      Tag("title", {}, title) + Tag("style", {}, Markup::Raw(ColourSheet() + assets::kStyle));
  return "<!DOCTYPE html>\n" +
         Tag("html", {{"lang", "en"}}, Tag("head", {}, head),
             Tag("body", {{"id", "top"}}, body, Tag("script", {}, Markup::Raw(assets::kScript))))
             .html() +
         "\n";
}

}  // namespace

std::string DetailsId(std::string_view part) { return std::string(part) + "-details"; }

Markup Fold(const Link& link, const Markup& content, bool open) {
  Attributes attributes = {{"class", "fold"}, {"id", link.id}};
  if (open) attributes.emplace_back("open", "");
  return Tag("details", attributes, Tag("summary", {}, Tag("h3", {}, link.title)), content,
             TopLink());
}

void AddSection(Part& part, const std::string& suffix, const std::string& title,
                const Markup& content) {
  if (content.empty()) return;
  part.links.push_back({part.id + suffix, title});
  part.body += Fold(part.links.back(), content);
}

std::string RenderPage(const std::vector<Part>& parts) {
  Markup body;
  for (size_t i = 0; i < parts.size(); ++i) {
    body += RenderPart(parts[i], i == 0, parts.size() <= 2);
  }
  const Markup appendix = RenderAppendix(parts);
  return RenderDocument(
      parts.front().title + " – Planish report",
      Tag("header", {}, Tag("h1", {}, "Planish report")) +
          Tag("div", {{"class", "page"}}, RenderContents(parts, !appendix.empty()),
              Tag("main", {}, body, appendix)));
}

}  // namespace planish::lab
