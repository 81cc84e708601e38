#include "lab/report/report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "lab/error.h"
#include "lab/report/findings.h"
#include "lab/report/format.h"
#include "lab/report/html.h"

namespace planish::lab {
namespace {

std::vector<Section> SectionsOf(const std::vector<Run>& runs, std::string_view function) {
  if (runs.empty()) {
    throw RunError(fmt::format("[{}] runs must hold a run but has none", function));
  }
  return Summarise(runs);
}

void WriteAll(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw RunError(std::strerror(errno));
    content.remove_prefix(static_cast<size_t>(written));
  }
}

// A reader of `path` sees the old content or the new one, never a part.
void Replace(const std::filesystem::path& path, std::string_view content) {
  const std::string temporary = fmt::format("{}.{}.tmp", path.string(), getpid());
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  try {
    if (file < 0) throw RunError(std::strerror(errno));
    WriteAll(file, content);
    const bool synced = fsync(file) == 0;
    if (close(file) != 0 || !synced) throw RunError(std::strerror(errno));
    if (std::rename(temporary.c_str(), path.c_str()) != 0) throw RunError(std::strerror(errno));
  } catch (const RunError& error) {
    if (file >= 0) unlink(temporary.c_str());
    throw RunError(
        fmt::format("[WriteReport] {} must be writable but has: {}", path.string(), error.what()));
  }
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
  Replace(path, RenderReport(runs));
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
