#include "lab/report/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "lab/error.h"
#include "lab/report/findings.h"
#include "lab/report/format.h"
#include "lab/report/html.h"
#include "lab/run/atomic_file.h"

namespace planish::lab {
namespace {

std::vector<Section> SectionsOf(const std::vector<Run>& runs, std::string_view function) {
  if (runs.empty()) {
    throw RunError(fmt::format("[{}] runs must hold a run but has none", function));
  }
  return Summarise(runs);
}

}  // namespace

std::string RenderReport(const std::vector<Run>& runs) {
  const std::vector<Section> sections = SectionsOf(runs, "RenderReport");
  Markup links;
  Markup body;
  for (size_t i = 0; i < sections.size(); ++i) {
    const std::string id = fmt::format("s{}", i);
    const RunConfig& config = *sections[i].config;
    links +=
        Tag("li", {},
            Tag("a", {{"href", "#" + id}}, config.report.title + " (" + config.data.name + ")"));
    body += RenderSection(sections[i], id);
  }
  const std::string title = sections.size() == 1
                                ? sections[0].config->report.title + " – Planish report"
                                : "Planish report";
  Markup header = Tag("h1", {}, "Planish report");
  if (sections.size() > 1)
    header += Tag("nav", {{"aria-label", "Experiments"}}, Tag("ul", {}, links));
  return RenderDocument(title, Tag("header", {}, header) + Tag("main", {}, body));
}

void WriteReport(const std::vector<Run>& runs, const std::filesystem::path& path) {
  WriteFileAtomically(path, RenderReport(runs));
}

std::string Findings(const std::vector<Run>& runs, int most) {
  std::vector<std::string> verdicts;
  std::vector<std::string> comparisons;
  const std::vector<Section> sections = SectionsOf(runs, "Findings");
  for (const Section& section : sections) {
    const std::string title = sections.size() > 1 ? section.config->report.title + ": " : "";
    for (const ClaimResult& result : JudgeClaims(section)) {
      if (result.verdict == Verdict::kNotMeasured || result.verdict == Verdict::kOtherData)
        continue;
      verdicts.push_back(fmt::format("{}Published: \"{}\" Verdict: {}. Measured: {}", title,
                                     result.claim->text, VerdictText(result.verdict),
                                     MeasuredText(section, result)));
    }
    for (const Panel& panel : section.panels) {
      for (const Finding& finding : FindingsOf(section, panel)) {
        comparisons.push_back(title + finding.sentence);
      }
    }
  }
  verdicts.insert(verdicts.end(), comparisons.begin(), comparisons.end());
  std::string text;
  const size_t count = std::min(verdicts.size(), static_cast<size_t>(std::max(most, 0)));
  for (size_t i = 0; i < count; ++i) text += CleanText(verdicts[i]) + "\n";
  if (count < verdicts.size()) {
    text += fmt::format("{} more in the report.\n",
                        Count(static_cast<int64_t>(verdicts.size() - count), "finding"));
  }
  return text;
}

}  // namespace planish::lab
