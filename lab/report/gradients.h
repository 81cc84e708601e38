#ifndef PLANISH_LAB_REPORT_GRADIENTS_H_
#define PLANISH_LAB_REPORT_GRADIENTS_H_

#include <string>
#include <string_view>
#include <vector>

#include "lab/analysis/summary.h"
#include "lab/report/markup.h"

// Gradients around the norms of a model (Xu et al. 2019, Theorem 1).
namespace planish::lab {

/// Gradients around one norm of a model, over the seeds of a group. Ratios are of what the norm
/// hands on to what it would with mean and deviation detached.
struct LayerGradients {
  std::string layer;
  Estimate mean_ratio;      ///< mean_after / mean_detached
  Estimate variance_ratio;  ///< variance_after / variance_detached
  Estimate variance;        ///< variance_after
  std::vector<const Run*> runs;
};

/// One for each norm that the runs' models have, in the models' order, from the last evaluation
/// that recorded gradients; of finished runs, or of the others while there are none.
std::vector<LayerGradients> GradientsOf(const Group& group);

/// What Theorem 1 says of a norm's ratios; "–" where it says nothing.
struct TheoremLine {
  std::string_view mean;
  std::string_view variance;
};
TheoremLine TheoremOf(std::string_view norm);

/// Table and charts of a panel's gradients; empty where its runs recorded none.
Markup RenderGradients(const Section& section, const Panel& panel, const std::string& id);

}  // namespace planish::lab

#endif  // PLANISH_LAB_REPORT_GRADIENTS_H_
