#ifndef PLANISH_LAB_REPORT_PAGE_H_
#define PLANISH_LAB_REPORT_PAGE_H_

#include <string>
#include <string_view>
#include <vector>

#include "lab/report/markup.h"

// Layout of the report: a first screen, a table of contents, parts that fold, and an appendix.
namespace planish::lab {

/// Number of results of one kind: "4 agree, claims 1, 2".
struct Tile {
  size_t count = 0;
  std::string word;  ///< "agrees": also the class of its colour
  std::string note;
};

/// First screen of a part: three sentences, a chart and counts.
struct Summary {
  std::string asked;
  std::string found;
  std::string sure;
  Markup chart;
  std::vector<Tile> tiles;
};

/// Entry of the table of contents.
struct Link {
  std::string id;
  std::string title;
};

/// Part of the report: a paper, a task, the theory or an arena.
struct Part {
  std::string id;
  std::string title;
  std::string source;      ///< line under the title
  std::string group = {};  ///< entry of the contents for consecutive parts of one kind: "Tasks"
  Summary summary;
  Markup body;
  std::vector<Link> links;  ///< sections of the body
  Markup details;           ///< tables and settings for the appendix
};

/// Returns a section of a part that folds, with a heading of level 3.
Markup Fold(const Link& link, const Markup& content, bool open = true);

/// Appends a section that folds to a part, and its entry to the contents, unless `content` is
/// empty. Its id is the part's followed by `suffix`.
void AddSection(Part& part, const std::string& suffix, const std::string& title,
                const Markup& content);

/// Returns the document with its style and script inside. The first part is open, and its summary
/// is the first screen. The others are folded if there are more than two parts. The appendix is
/// printed only if the reader chooses so.
std::string RenderPage(const std::vector<Part>& parts);

/// Returns the id of a part's details in the appendix.
std::string DetailsId(std::string_view part);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_PAGE_H_
