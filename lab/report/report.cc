#include "lab/report/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lab/analysis/findings.h"
#include "lab/analysis/format.h"
#include "lab/analysis/reproduction.h"
#include "lab/error.h"
#include "lab/report/arena_html.h"
#include "lab/report/contents.h"
#include "lab/report/html.h"
#include "lab/report/paper_html.h"
#include "lab/report/theory_html.h"
#include "lab/run/atomic_file.h"

namespace planish::lab {
namespace {

void CheckNotEmpty(const std::vector<Run>& runs, const std::vector<TheoryResult>& theory,
                   std::string_view function) {
  if (runs.empty() && theory.empty()) {
    throw RunError(fmt::format("[{}] runs must not be empty", function));
  }
}

}  // namespace

Contents ContentsOf(const std::vector<Run>& runs) {
  Contents contents{.arenas = FindArenas(runs), .compared = {}, .sections = {}};
  if (contents.arenas.empty()) {
    contents.sections = Summarize(runs);
    return contents;
  }
  contents.compared = runs;
  KeepComparedRuns(contents.compared);
  contents.sections = Summarize(contents.compared);
  return contents;
}

std::string RenderReport(const std::vector<Run>& runs, const ReportExtras& extras) {
  const std::vector<TheoryResult>& theory = extras.theory;
  CheckNotEmpty(runs, theory, "RenderReport");
  const Contents contents = ContentsOf(runs);
  const std::vector<Section>& sections = contents.sections;
  std::vector<Part> parts;
  for (size_t i = 0; i < contents.arenas.size(); ++i) {
    parts.push_back(RenderArena(contents.arenas[i], fmt::format("arena{}", i)));
  }
  const std::vector<Reproduction> reproductions = FindReproductions(sections, extras.looks);
  // Papers whose columns have few runs come last.
  const auto add_papers = [&](bool mostly_run) {
    for (const Reproduction& reproduction : reproductions) {
      if (reproduction.IsMostlyRun() != mostly_run) continue;
      parts.push_back(RenderReproduction(reproduction, "paper-" + reproduction.paper->name));
    }
  };
  add_papers(true);
  const bool has_paper = parts.size() > contents.arenas.size();
  if (!theory.empty()) parts.push_back(RenderTheorySection(theory, "theory"));
  for (size_t i = 0; i < sections.size(); ++i) {
    parts.push_back(RenderSection(sections[i], fmt::format("s{}", i)));
    // The paper's tables contain these results.
    if (has_paper) parts.back().summary = {};
  }
  add_papers(false);
  return RenderPage(parts);
}

void WriteReport(const std::vector<Run>& runs, const std::filesystem::path& path,
                 const ReportExtras& extras) {
  WriteOutputFile(path, RenderReport(runs, extras));
}

std::string Findings(const std::vector<Run>& runs, int max_panels, const ReportExtras& extras) {
  constexpr size_t kColumns = 160;
  std::vector<std::string> lines;
  std::string claims;
  CheckNotEmpty(runs, extras.theory, "Findings");
  const Contents contents = ContentsOf(runs);
  const std::vector<Section>& sections = contents.sections;
  for (const Section& section : sections) {
    const std::string title = sections.size() > 1 ? section.config->report.title + ": " : "";
    for (const Panel& panel : section.panels) {
      const std::string line = BriefOf(section, panel, kColumns - std::min(kColumns, title.size()));
      if (!line.empty()) lines.push_back(CleanText(title + line) + "\n");
    }
    const std::string line = BriefOfClaims(section);
    if (!line.empty()) claims += CleanText(title + line) + "\n";
  }
  const size_t count = std::min(lines.size(), static_cast<size_t>(std::max(max_panels, 0)));
  if (count > 0 && count < lines.size()) {
    lines[count - 1].insert(lines[count - 1].size() - 1,
                            fmt::format(" {} more in the report.", lines.size() - count));
  }
  lines.resize(count);
  std::string papers;
  for (const Reproduction& reproduction : FindReproductions(sections, extras.looks)) {
    papers += BriefOfPaper(reproduction);
  }
  std::string arenas;
  for (const ArenaTask& arena : contents.arenas) arenas += BriefOfArena(arena);
  return fmt::format("{}{}{}{}{}", arenas, fmt::join(lines, ""), claims, papers,
                     BriefOfTheory(extras.theory));
}

}  // namespace planish::lab
