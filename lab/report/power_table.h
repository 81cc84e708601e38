#ifndef PLANISH_LAB_REPORT_POWER_TABLE_H_
#define PLANISH_LAB_REPORT_POWER_TABLE_H_

#include <string>
#include <vector>

#include "lab/papers/paper.h"
#include "lab/run/results.h"
#include "lab/terminal/layout.h"

namespace planish::lab {

/// Returns how many seeds the paper's claims need, by `runs` (PowerOf), as a table for a terminal
/// with the claims below; an empty text if no run is of the paper.
std::string RenderPower(const Paper& paper, const std::vector<Run>& runs,
                        const TableOptions& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_POWER_TABLE_H_
