#ifndef PLANISH_LAB_QUEUE_RUNNER_H_
#define PLANISH_LAB_QUEUE_RUNNER_H_

#include <optional>
#include <string>
#include <vector>

#include "lab/queue/queue.h"

namespace planish::lab {

struct RunnerOptions {
  int jobs = 1;                   ///< processes at once
  std::optional<double> hours{};  ///< limit on the time
  /// More arguments of each run, such as "--threads", "1".
  std::vector<std::string> arguments{};
  bool quiet = false;  ///< only warnings and errors, no progress
};

/// Trains the unfinished runs of `queue`, each in a process of this program. Leaves a run that
/// another process trains to it, and does not wait for its end. Returns the exit status of a
/// command: 0, 3 if runs failed and all of them for missing data, 1 if some failed
/// otherwise, or 128 plus the signal received. Throws RunError if a process cannot be started.
int TrainQueue(RunQueue& queue, const RunnerOptions& options);

}  // namespace planish::lab

#endif  // PLANISH_LAB_QUEUE_RUNNER_H_
