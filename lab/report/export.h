#ifndef PLANISH_LAB_REPORT_EXPORT_H_
#define PLANISH_LAB_REPORT_EXPORT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/analysis/statistics.h"
#include "lab/run/results.h"

// Runs as data for other programs (docs/files.md#exported-runs): exact values in the units of the
// run folders.
namespace planish::lab {

struct Section;  // lab/analysis/summary.h

/// Returns a JSON text with `indent` spaces a level, or on one line. Invalid UTF-8 becomes U+FFFD.
std::string DumpJson(const nlohmann::ordered_json& value, int indent = -1);

/// Returns mean and half-width of the 95% interval, null where there is none.
nlohmann::ordered_json EstimateJson(const Estimate& estimate);

/// Returns a row for each group of the sections.
std::vector<nlohmann::ordered_json> GroupRows(const std::vector<Section>& sections);

/// Returns objects as CSV by RFC 4180, with a header line. A column's name joins the keys of its
/// value by dots. Missing values are empty.
std::string CsvOf(const std::vector<nlohmann::ordered_json>& rows);

/// What a row of the exported data is.
enum class ExportRow {
  kGroup,  ///< the seeds of one task, data and setting: a row of RenderTable
  kRun     ///< one run, also if a group leaves it out because another run replaces it
};

/// Returns a JSON document, an object with its format and the rows. Missing values are null.
/// Invalid UTF-8 in the names of folders becomes U+FFFD.
std::string RenderJson(const std::vector<Run>& runs, ExportRow row);

/// Returns the rows of RenderJson as CsvOf.
std::string RenderCsv(const std::vector<Run>& runs, ExportRow row);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_EXPORT_H_
