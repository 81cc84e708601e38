#ifndef PLANISH_LAB_REPORT_HTML_H_
#define PLANISH_LAB_REPORT_HTML_H_

#include <string>

#include "lab/analysis/summary.h"
#include "lab/report/markup.h"

namespace planish::lab {

/// Renders a section of the report as HTML. Every id in it starts with `id`.
Markup RenderSection(const Section& section, const std::string& id);

/// Returns the whole document around `body`, with its style and script inside.
std::string RenderDocument(const std::string& title, const Markup& body);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_HTML_H_
