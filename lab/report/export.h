#ifndef PLANISH_LAB_REPORT_EXPORT_H_
#define PLANISH_LAB_REPORT_EXPORT_H_

#include <string>
#include <vector>

#include "lab/run/results.h"

// Runs as data for other programs (docs/files.md#exported-runs): exact values in the units of the
// run folders.
namespace planish::lab {

/// What a row of the exported data is.
enum class ExportRow {
  kGroup,  ///< the seeds of one task, data and setting: a row of RenderTable
  kRun     ///< one run, also if a group leaves it out because another run replaces it
};

/// Returns a JSON document, an object with its format and the rows. Missing values are null.
/// Invalid UTF-8 in the names of folders becomes U+FFFD.
std::string RenderJson(const std::vector<Run>& runs, ExportRow row);

/// Returns the rows of RenderJson as CSV by RFC 4180, with a header line. A column's name joins the
/// keys of its JSON value by dots: "final.test_error". Missing values are empty.
std::string RenderCsv(const std::vector<Run>& runs, ExportRow row);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_EXPORT_H_
