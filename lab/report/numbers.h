#ifndef PLANISH_LAB_REPORT_NUMBERS_H_
#define PLANISH_LAB_REPORT_NUMBERS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/report/report.h"
#include "lab/run/results.h"

namespace planish::lab {

/// Numbers of a report as rows, each an object (docs/files.md#numbers-of-a-report).
struct NumbersTable {
  std::string name;  ///< "curves"
  std::vector<nlohmann::ordered_json> rows;
};

/// Returns the numbers that RenderReport shows, in the units of the run folders: a table for each
/// kind, also if it has no rows. Differences, margins and printed values have the displayed unit.
std::vector<NumbersTable> NumbersOf(const std::vector<Run>& runs, const ReportExtras& extras);

/// Returns the tables as one JSON document.
std::string NumbersJson(const std::vector<NumbersTable>& tables);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_NUMBERS_H_
