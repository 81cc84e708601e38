#ifndef PLANISH_LAB_REPORT_POWER_TABLE_H_
#define PLANISH_LAB_REPORT_POWER_TABLE_H_

#include <string>
#include <vector>

#include "lab/analysis/power.h"
#include "lab/papers/paper.h"
#include "lab/run/results.h"
#include "lab/terminal/layout.h"

namespace planish::lab {

/// Returns a duration in hours as text: "0.25", "1.5", "12".
std::string HoursText(double minutes);

/// Returns `rows` as a table for a terminal, each with its cell of a last column, and the claims
/// below.
std::string RenderPowerRows(const Paper& paper, const std::vector<ClaimPower>& rows,
                            const std::string& heading, const std::vector<std::string>& cells,
                            const TableOptions& options);

/// Returns RenderPowerRows of PowerOf(`runs`) with the hours that are missing; an empty text if no
/// run is of the paper.
std::string RenderPower(const Paper& paper, const std::vector<Run>& runs,
                        const std::vector<SequentialTests>& looks, const TableOptions& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_POWER_TABLE_H_
