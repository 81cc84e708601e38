#ifndef PLANISH_LAB_REPORT_THEORY_HTML_H_
#define PLANISH_LAB_REPORT_THEORY_HTML_H_

#include <string>
#include <vector>

#include "lab/report/page.h"
#include "lab/theory/result.h"

namespace planish::lab {

/// Title of the section of RenderTheorySection.
inline constexpr std::string_view kTheoryTitle = "Theory of the papers, measured";

/// Renders the results of analyses as one section of the page: statements with verdicts, charts and
/// tables. Every id in it starts with `id`.
Part RenderTheorySection(const std::vector<TheoryResult>& found, const std::string& id);

/// Returns the numbers of statements with each verdict for a terminal, one line.
std::string BriefOfTheory(const std::vector<TheoryResult>& results);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_THEORY_HTML_H_
