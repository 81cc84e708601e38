#ifndef PLANISH_LAB_REPORT_ARENA_HTML_H_
#define PLANISH_LAB_REPORT_ARENA_HTML_H_

#include <string>
#include <vector>

#include "lab/analysis/arena.h"
#include "lab/report/page.h"

namespace planish::lab {

/// Renders the arena of a task as a section of the page with that id: its ranking, and the tuning.
Part RenderArena(const ArenaTask& arena, const std::string& id);

/// Returns the section's title: "Arena: RT: sentences in two classes (rt)".
std::string ArenaTitle(const ArenaTask& arena);

/// Returns the ranking for a terminal: a line with the first entry and those that are not told
/// apart from it.
std::string BriefOfArena(const ArenaTask& arena);

/// Returns BriefOfArena of every arena of `runs`, with a heading, or an empty text.
std::string BriefRanking(const std::vector<Run>& runs);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_ARENA_HTML_H_
