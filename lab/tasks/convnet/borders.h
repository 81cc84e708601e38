#ifndef PLANISH_LAB_TASKS_CONVNET_BORDERS_H_
#define PLANISH_LAB_TASKS_CONVNET_BORDERS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "lab/tasks/convnet/model.h"

namespace planish::lab {

/// Statistics of one kind of units over all cases.
struct UnitStatistics {
  double on = 0;         ///< fraction of cases in which a unit is not 0, mean over the units
  double mean = 0;       ///< of a unit's sum over the cases, mean over the units
  double deviation = 0;  ///< of a unit's sum over the cases, mean over the units
};

/// Statistics of a convolution's units near the image border, and of the others.
struct BorderStatistics {
  UnitStatistics border, inside;
};

/// Returns the width of the border of images of this side: an eighth, at least 1.
int64_t BorderWidth(int64_t side);

/// Returns the statistics of units [N, H, W, C], N >= 2, H = W >= 3.
BorderStatistics StatisticsOf(const ConvNet::Units& units);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_CONVNET_BORDERS_H_
