#ifndef PLANISH_LAB_REPORT_CONTENTS_H_
#define PLANISH_LAB_REPORT_CONTENTS_H_

#include <vector>

#include "lab/analysis/arena.h"
#include "lab/analysis/summary.h"
#include "lab/run/results.h"

namespace planish::lab {

/// What a report is about. Tuning runs appear only in the arenas. Points into the runs.
struct Contents {
  std::vector<ArenaTask> arenas;
  std::vector<Run> compared;      ///< if there are arenas: the runs that are compared
  std::vector<Section> sections;  ///< of these, or of all runs
};

/// Returns the contents of `runs`, which must outlive them.
Contents ContentsOf(const std::vector<Run>& runs);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_CONTENTS_H_
