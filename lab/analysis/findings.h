#ifndef PLANISH_LAB_ANALYSIS_FINDINGS_H_
#define PLANISH_LAB_ANALYSIS_FINDINGS_H_

#include <string>
#include <vector>

#include "lab/analysis/summary.h"

namespace planish::lab {

/// What was found, as a sentence.
struct Finding {
  std::string word;  ///< "better", "worse", "cannot tell", "no comparison" or "smoke run"
  std::string sentence;
};

/// One finding for each group of the panel but the baseline's, on the headline metric.
std::vector<Finding> FindingsOf(const Section& section, const Panel& panel);

/// All findings of a panel in one line for a terminal, of `width` columns or little more: every
/// group's mean on the headline metric, the best first after the baseline, and what the difference
/// says. Where it is too long, the groups in the middle are only counted. Empty when nothing in the
/// panel has finished.
std::string BriefOf(const Section& section, const Panel& panel, size_t width);

/// How many of the published claims the runs agree with, in one line; empty when none is judged.
std::string BriefOfClaims(const Section& section);

/// How the findings of a section were measured, in one or two sentences.
std::string MethodOf(const Section& section);

/// The numbers of a judged claim as a sentence, or why there are none.
std::string MeasuredText(const Section& section, const ClaimResult& result);

/// A line for each group some of whose runs diverged or have not finished.
std::vector<std::string> Incomplete(const Section& section);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ANALYSIS_FINDINGS_H_
