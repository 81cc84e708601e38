#ifndef PLANISH_LAB_ENGINE_SCHEDULE_H_
#define PLANISH_LAB_ENGINE_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace planish::lab {

/// Learning rate over a run.
struct Schedule {
  std::string shape = "constant";  ///< one of ScheduleNames()
  double peak = 1e-3;              ///< the setting `lr`
  int64_t warmup = 0;              ///< updates during which the rate rises linearly to `peak`

  /// Returns the rate of update `update` (from 1), where `done` (0 to 1) is the completed fraction
  /// of the run. After warm-up:
  ///   constant      peak
  ///   inverse-sqrt  peak * sqrt(warmup / update), warmup at least 1 (Vaswani et al. 2017, 5.3)
  ///   cosine        peak * (1 + cos(pi * done)) / 2 (Loshchilov & Hutter 2017, without restarts)
  double Rate(int64_t update, double done) const;
};

const std::vector<std::string>& ScheduleNames();

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_SCHEDULE_H_
