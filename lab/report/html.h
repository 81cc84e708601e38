#ifndef PLANISH_LAB_REPORT_HTML_H_
#define PLANISH_LAB_REPORT_HTML_H_

#include <string>

#include "lab/analysis/summary.h"
#include "lab/report/page.h"

namespace planish::lab {

/// Returns the runs of a task as a part of the page. Every id in it starts with `id`.
Part RenderSection(const Section& section, const std::string& id);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_HTML_H_
