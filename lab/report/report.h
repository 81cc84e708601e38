#ifndef PLANISH_LAB_REPORT_REPORT_H_
#define PLANISH_LAB_REPORT_REPORT_H_

#include <filesystem>
#include <string>
#include <vector>

#include "lab/analysis/sequential.h"
#include "lab/run/results.h"
#include "lab/terminal/layout.h"
#include "lab/theory/result.h"

// Report of runs and of analyses of the papers' theory. It depends only on these: the same ones
// give the same bytes.
namespace planish::lab {

/// What a report is about beside the runs.
struct ReportExtras {
  std::vector<TheoryResult> theory{};
  std::vector<SequentialTests> looks{};
};

/// Returns an HTML document about `runs` and the analyses of the theory: findings, published claims
/// with verdicts, tables and charts. It needs no network and no script. Throws RunError if there
/// are neither runs nor results of the theory.
std::string RenderReport(const std::vector<Run>& runs, const ReportExtras& extras = {});

/// Writes RenderReport's document to the file `path` (see WriteOutputFile). Throws RunError.
void WriteReport(const std::vector<Run>& runs, const std::filesystem::path& path,
                 const ReportExtras& extras = {});

/// Returns a summary of `runs` for a terminal: a table for each task and panel. Throws RunError if
/// there are no runs.
std::string RenderTable(const std::vector<Run>& runs, const TableOptions& options = {});

/// Returns the findings for a terminal, fewer than in the report. Each of the first `max_panels`
/// panels has a line of about 160 columns. Each task with published claims on these runs has one
/// line, and the results of the theory have one. Throws like RenderReport.
std::string Findings(const std::vector<Run>& runs, int max_panels = 2,
                     const ReportExtras& extras = {});

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_REPORT_H_
