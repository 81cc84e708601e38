#ifndef PLANISH_LAB_QUEUE_RUNNER_H_
#define PLANISH_LAB_QUEUE_RUNNER_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/engine/train.h"
#include "lab/queue/queue.h"
#include "lab/run/results.h"
#include "lab/terminal/progress.h"

namespace planish::lab {

/// How a run of a queue got its result.
enum class ResultOf {
  kThisCommand,
  kEarlierCommand,  ///< was there before
  kOtherProcess,    ///< trained by another process meanwhile
};

struct RunnerOptions {
  int jobs = 1;                   ///< processes at once
  std::optional<double> hours{};  ///< limit on the time
  /// More arguments of each run, such as "--threads", "1".
  std::vector<std::string> arguments{};

  /// Trains a run in this process; empty: each in a process of its own. Every run of the queue goes
  /// to it, also one with a result. Can throw, RunInUse among others.
  std::function<Outcome(const QueuedRun&, Progress&)> train_here{};
  /// Set if other processes train every run of the queue together with this one.
  bool is_one_of_several = false;

  /// Returns true if the run with this index has a result. Empty: RunQueue::FindResult.
  std::function<bool(size_t)> has_result{};
  /// Describes a run with a result, in a line for each run. If empty, a line gives the time of the
  /// run, and runs with an earlier result have none.
  std::function<std::string(const Run&)> summary{};
  /// Called with the index of a run when it has a result.
  std::function<void(size_t, const Run&, ResultOf)> on_result{};
};

/// Trains the unfinished runs of `queue`, each in a process of this program unless
/// RunnerOptions::train_here is set. Leaves a run that another process trains to it: takes the next
/// one, looks at it again before each further run, and does not wait for its end. Names a run that
/// fails and continues with the others; the error of an only run of `train_here` is thrown.
/// Returns the exit status of a command: 0, 3 if runs failed and all of them for missing data, 1 if
/// some failed otherwise, or 128 plus the signal received under the caller's InterruptGuard. Throws
/// RunError if a process cannot be started.
int TrainQueue(RunQueue& queue, const RunnerOptions& options, Progress& progress);

}  // namespace planish::lab

#endif  // PLANISH_LAB_QUEUE_RUNNER_H_
