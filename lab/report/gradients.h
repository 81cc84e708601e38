#ifndef PLANISH_LAB_REPORT_GRADIENTS_H_
#define PLANISH_LAB_REPORT_GRADIENTS_H_

#include <string>
#include <string_view>
#include <vector>

#include "lab/analysis/summary.h"
#include "lab/report/markup.h"

// Gradients around the norms of a model (Xu et al. 2019, Theorem 1).
namespace planish::lab {

/// Gradients around one norm of a model, over the seeds of a group. A ratio divides the norm's
/// input gradient by that with mean and deviation detached.
struct LayerGradients {
  std::string layer;
  Estimate mean_ratio;      ///< mean_after / mean_detached
  Estimate variance_ratio;  ///< variance_after / variance_detached
  Estimate variance;        ///< variance_after
  std::vector<const Run*> runs;
};

/// Returns one entry for each norm of the runs' models, in the models' order, from the last
/// evaluation that recorded gradients. Uses finished runs, or the others if none has finished.
std::vector<LayerGradients> GradientsOf(const Group& group);

/// Ratios that Theorem 1 states for a norm; "–" for none.
struct TheoremLine {
  std::string_view mean;
  std::string_view variance;
};
TheoremLine TheoremOf(std::string_view norm);

/// Returns table and charts of a panel's gradients; empty if its runs recorded none.
Markup RenderGradients(const Section& section, const Panel& panel, const std::string& id);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_GRADIENTS_H_
