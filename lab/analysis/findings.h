#ifndef PLANISH_LAB_ANALYSIS_FINDINGS_H_
#define PLANISH_LAB_ANALYSIS_FINDINGS_H_

#include <string>
#include <vector>

#include "lab/analysis/claims.h"
#include "lab/analysis/summary.h"

namespace planish::lab {

/// Result of a comparison as a sentence.
struct Finding {
  std::string word;  ///< "better", "worse", "cannot tell", "no comparison" or "smoke run"
  std::string sentence;
};

/// Returns one finding on the headline metric for each group of the panel except the baseline.
std::vector<Finding> FindingsOf(const Section& section, const Panel& panel);

/// Returns all findings of a panel in one terminal line of about `width` columns. The line has the
/// mean of each group on the headline metric and the verdict on its difference. The baseline is
/// first, then the groups from best to worst. If the line is too long, groups in the middle are
/// only counted. Empty if no run of the panel has finished.
std::string BriefOf(const Section& section, const Panel& panel, size_t width);

/// Returns a line with the number of published claims that the runs agree with; empty if none is
/// judged.
std::string BriefOfClaims(const Section& section);

/// Returns one or two sentences on how the findings of a section were measured.
std::string MethodOf(const Section& section);

/// Returns a sentence with the values of a judged claim, or the reason why there are none.
std::string MeasuredText(const Section& section, const ClaimResult& result);

/// Returns a line for each group in which a run diverged or has not finished.
std::vector<std::string> Incomplete(const Section& section);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_FINDINGS_H_
