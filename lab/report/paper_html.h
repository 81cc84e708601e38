#ifndef PLANISH_LAB_REPORT_PAPER_HTML_H_
#define PLANISH_LAB_REPORT_PAPER_HTML_H_

#include <string>

#include "lab/analysis/reproduction.h"
#include "lab/report/page.h"

namespace planish::lab {

/// Returns a paper compared with the runs as a part of the page: its claims, tables and figures.
/// Every id in it starts with `id`.
Part RenderReproduction(const Reproduction& reproduction, const std::string& id);

/// Returns the paper's claims for a terminal, one line each with its verdict.
std::string BriefOfPaper(const Reproduction& reproduction);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_PAPER_HTML_H_
