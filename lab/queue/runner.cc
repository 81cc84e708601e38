#include "lab/queue/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lab/error.h"
#include "lab/queue/children.h"
#include "lab/run/results.h"
#include "lab/run/writer.h"
#include "lab/terminal/interrupt.h"
#include "lab/terminal/progress.h"

namespace planish::lab {

namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs the training processes: chooses the next, tracks their results and reports progress.
class Runner {
 public:
  Runner(RunQueue& queue, const RunnerOptions& options)
      : queue_(queue),
        options_(options),
        jobs_(static_cast<size_t>(options.jobs)),
        progress_(static_cast<int>(queue.runs.size()), StderrProgressMode(options.quiet)),
        done_(queue.Done()) {
    for (size_t i = 0; i < queue.runs.size(); ++i) {
      if (!queue.runs[i].done) waiting_.push_back(i);
    }
  }

  // Trains until all runs or the time are done. Returns 0, kDataStatus if runs failed and all of
  // them for missing data, 1 if some failed otherwise, or 128 plus the signal received.
  int Train() {
    const InterruptGuard interrupts;
    while (true) {
      if (Interrupted() != 0 || TimeIsUp()) break;
      StartRuns();
      if (children_.running() == 0) break;
      Take(children_.Wait(kLookMilliseconds));
      ShowProgress();
    }
    const size_t unfinished = children_.running();
    stopping_ = unfinished > 0;
    children_.Terminate();
    while (children_.running() > 0) Take(children_.Wait(kLookMilliseconds));
    // Without --hours, StartRuns has just looked at all.
    if (options_.hours) TakeResultsOfOthers();
    if (Interrupted() != 0) {
      progress_.Warn(
          fmt::format("stopped: {} of {} runs done. Run the same command again to continue.", done_,
                      queue_.runs.size()));
      return 128 + Interrupted();
    }
    if (in_use_.size() > 0) {
      progress_.Warn(fmt::format("{} of {} runs left to another process, which is training {}",
                                 in_use_.size(), queue_.runs.size(),
                                 in_use_.size() == 1 ? "it" : "them"));
    }
    if (options_.hours && unfinished + waiting_.size() > in_use_.size()) {
      progress_.Warn(fmt::format(
          "{} of {} runs done within --hours {:g}. Run the same command again to continue.", done_,
          queue_.runs.size(), *options_.hours));
    }
    if (failed_ > 0)
      progress_.Warn(fmt::format("{} of {} runs failed", failed_, queue_.runs.size()));
    if (failed_ == 0) return 0;
    return failed_ == failed_by_data_ ? kDataStatus : 1;
  }

 private:
  static constexpr int kLookMilliseconds = 200;

  double SecondsLeft() const { return *options_.hours * 3600 - SecondsSince(start_); }
  bool TimeIsUp() const { return options_.hours && SecondsLeft() <= 0; }

  // Returns true if a run is expected to end in time.
  bool Fits(const QueuedRun& run) const {
    return !options_.hours || queue_.estimates.Left(run).value_or(0) * 60 <= SecondsLeft();
  }

  // Returns true if another process has trained the run, which is then done, or is training it.
  bool IsTakenByOthers(size_t index) {
    QueuedRun& run = queue_.runs[index];
    in_use_.erase(index);
    if (queue_.FindResult(run)) {
      ++done_;
      progress_.Note(fmt::format("{}/{} {}  trained by another process", done_, queue_.runs.size(),
                                 run.Name()));
      return true;
    }
    if (!IsInUse(run.plan.folder)) return false;
    in_use_.insert(index);
    return true;
  }

  void TakeResultsOfOthers() {
    std::erase_if(waiting_,
                  [&](size_t run) { return IsTakenByOthers(run) && queue_.runs[run].done; });
  }

  void StartRuns() {
    for (auto next = waiting_.begin(); next != waiting_.end() && children_.running() < jobs_;) {
      QueuedRun& run = queue_.runs[*next];
      if (!Fits(run)) {
        ++next;
        continue;
      }
      if (IsTakenByOthers(*next)) {
        next = run.done ? waiting_.erase(next) : next + 1;
        continue;
      }
      std::vector<std::string> arguments = run.arguments;
      arguments.insert(arguments.end(), options_.arguments.begin(), options_.arguments.end());
      arguments.emplace_back("--quiet");
      children_.Start(*next, arguments);
      running_[*next] = Clock::now();
      next = waiting_.erase(next);
    }
  }

  void Take(const std::vector<Children::Ended>& ended) {
    for (const Children::Ended& child : ended) {
      QueuedRun& run = queue_.runs[child.id];
      const double seconds = SecondsSince(running_.at(child.id));
      running_.erase(child.id);
      if (child.status == 0) {
        run.done = true;
        ++done_;
        const RunResult result = *ReadRun(run.plan.folder).result;
        if (result.status == "finished") {
          queue_.estimates.Add(run, (result.seconds + result.evaluation_seconds) / 60);
        }
        progress_.Note(fmt::format(
            "{}/{} {}  {}{}", done_, queue_.runs.size(), run.Name(), FormatDuration(seconds),
            result.status == "finished" ? "" : "  " + result.status + ": " + result.message));
      } else if (child.status == 1 && IsTakenByOthers(child.id)) {
        // Another process took it after the test before its start.
        if (!run.done) waiting_.insert(std::ranges::lower_bound(waiting_, child.id), child.id);
      } else if (!stopping_) {
        ++failed_;
        progress_.Warn(fmt::format("{} failed ({}): {}", run.Name(),
                                   child.status < 128
                                       ? fmt::format("status {}", child.status)
                                       : fmt::format("signal {}", child.status - 128),
                                   child.error.empty() ? "no message" : child.error));
        if (child.status == kDataStatus) {
          ++failed_by_data_;
          LeaveOut(run.group);
        }
      }
    }
  }

  // If one run of a group cannot read its data, no run of that group can.
  void LeaveOut(size_t group) {
    const size_t count =
        std::erase_if(waiting_, [&](size_t run) { return queue_.runs[run].group == group; });
    if (count == 0) return;
    std::erase_if(in_use_, [&](size_t run) { return queue_.runs[run].group == group; });
    failed_ += count;
    failed_by_data_ += count;
    progress_.Warn(fmt::format("{}: the other {} runs with its data are left out",
                               queue_.groups[group], count));
  }

  void ShowProgress() {
    double minutes = 0;
    bool known = true;
    const auto add = [&](const QueuedRun& run, double seconds) {
      const std::optional<double> left = queue_.estimates.Left(run);
      known &= left.has_value();
      minutes += std::max(0.0, left.value_or(0) - seconds / 60);
    };
    std::vector<std::string> names;
    for (const auto& [run, started] : running_) {
      add(queue_.runs[run], SecondsSince(started));
      names.push_back(queue_.runs[run].Name());
    }
    for (const size_t run : waiting_) {
      if (!in_use_.contains(run)) add(queue_.runs[run], 0);
    }
    double seconds = minutes * 60 / static_cast<double>(jobs_);
    if (options_.hours) seconds = std::min(seconds, SecondsLeft());
    progress_.Update(fmt::format("{}/{} runs done  {}{}", done_, queue_.runs.size(),
                                 known ? FormatDuration(seconds) + " left  " : "",
                                 fmt::join(names, ", ")));
  }

  static constexpr int kDataStatus = 3;  // see kExitStatuses

  RunQueue& queue_;
  const RunnerOptions& options_;
  size_t jobs_;
  Clock::time_point start_ = Clock::now();
  Children children_;
  std::vector<size_t> waiting_;                  // in order
  std::set<size_t> in_use_;                      // of waiting_: another process is training them
  std::map<size_t, Clock::time_point> running_;  // run -> start time
  Progress progress_;
  size_t done_;
  size_t failed_ = 0, failed_by_data_ = 0;
  bool stopping_ = false;
};

}  // namespace

int TrainQueue(RunQueue& queue, const RunnerOptions& options) {
  return Runner(queue, options).Train();
}

}  // namespace planish::lab
