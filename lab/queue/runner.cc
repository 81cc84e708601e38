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

// Trains the runs: chooses the next, tracks their results and reports progress.
class Runner {
 public:
  Runner(RunQueue& queue, const RunnerOptions& options, Progress& progress)
      : queue_(queue),
        options_(options),
        jobs_(static_cast<size_t>(options.jobs)),
        progress_(progress),
        done_(options.summary ? 0 : queue.Done()) {
    for (size_t i = 0; i < queue.runs.size(); ++i) {
      if (!queue.runs[i].done || options.train_here) {
        waiting_.push_back(i);
      } else if (options.summary) {
        AddResult(i, ReadRun(queue.runs[i].plan.folder), ResultOf::kEarlierCommand, 0);
      }
    }
  }
  ~Runner() { progress_.SetTimeLeft({}); }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Trains until all runs or the time are done. Returns 0, kDataStatus if runs failed and all of
  // them for missing data, 1 if some failed otherwise, or 128 plus the signal received.
  int Train() {
    while (Interrupted() == 0 && !TimeIsUp() &&
           (options_.train_here ? TrainNextHere() : TrainChildren())) {
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
      progress_.Warn(fmt::format("{} of {} runs left to another process, which is training {}: {}",
                                 in_use_.size(), queue_.runs.size(),
                                 in_use_.size() == 1 ? "it" : "them", NamesOf(in_use_)));
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
  static constexpr size_t kMaxNames = 8;

  double SecondsLeft() const { return *options_.hours * 3600 - SecondsSince(start_); }
  bool TimeIsUp() const { return options_.hours && SecondsLeft() <= 0; }

  std::string NamesOf(const std::set<size_t>& runs) const {
    std::vector<std::string> names;
    for (const size_t run : runs) {
      if (names.size() == kMaxNames) break;
      names.push_back(NameOf(queue_.runs[run]));
    }
    if (runs.size() > kMaxNames) names.emplace_back("...");
    return fmt::format("{}", fmt::join(names, ", "));
  }

  // Returns the name of a run in messages. The runs of one task need not name it.
  std::string NameOf(const QueuedRun& run) const {
    return options_.summary ? run.plan.folder.filename().string() : run.Name();
  }

  // Returns true if a run is expected to end in time.
  bool Fits(const QueuedRun& run) const {
    return !options_.hours || queue_.estimates.Left(run).value_or(0) * 60 <= SecondsLeft();
  }

  // Counts the result of a run, and shows it. `seconds` is the time of its process.
  void AddResult(size_t index, const Run& run, ResultOf by, double seconds) {
    QueuedRun& queued = queue_.runs[index];
    queued.done = true;
    ++done_;
    const RunResult& result = *run.result;
    if (by == ResultOf::kThisCommand && result.status == "finished") {
      queue_.estimates.Add(queued, (result.seconds + result.evaluation_seconds) / 60);
    }
    std::string text = by == ResultOf::kEarlierCommand ? "done before"
                       : by == ResultOf::kOtherProcess ? "trained by another process"
                                                       : "";
    if (options_.summary) {
      text += (text.empty() ? "" : ": ") + options_.summary(run);
    } else if (by == ResultOf::kThisCommand) {
      text = FormatDuration(seconds);
      if (result.status != "finished") text += "  " + result.status + ": " + result.message;
    }
    if (options_.train_here) {
      progress_.EndRun(text);
    } else {
      progress_.Note(
          options_.summary
              ? fmt::format("run {}/{} {}  {}", index + 1, queue_.runs.size(), NameOf(queued), text)
              : fmt::format("{}/{} {}  {}", done_, queue_.runs.size(), NameOf(queued), text));
    }
    if (options_.on_result) options_.on_result(index, run, by);
  }

  void ShowFailure(const QueuedRun& run, const std::string& what) {
    ++failed_;
    progress_.Warn(fmt::format("{} failed {}", NameOf(run), what));
  }

  // Returns true if another process is training the run. The error of an only run in this process
  // says so, too.
  bool IsInUseByOthers(size_t index) {
    in_use_.erase(index);
    if (options_.train_here && IsOnly()) return false;
    const bool is_in_use = IsInUse(queue_.runs[index].plan.folder);
    if (is_in_use) in_use_.insert(index);
    return is_in_use;
  }

  // Returns true if there is no other run to continue with, or it is not for this process to
  // choose.
  bool IsOnly() const { return queue_.runs.size() == 1 || options_.is_one_of_several; }

  // Trains the next run in this process. Returns false if there is none, or the run was stopped.
  bool TrainNextHere() {
    const auto next =
        std::ranges::find_if(waiting_, [&](size_t run) { return !IsInUseByOthers(run); });
    if (next == waiting_.end()) return false;
    const size_t index = *next;
    waiting_.erase(next);
    const QueuedRun& run = queue_.runs[index];
    const bool was_done = run.done;
    progress_.SetTimeLeft([this, index](const RunTime& time) {
      std::vector<size_t> waiting;
      for (const size_t other : waiting_) {
        if (!queue_.runs[other].done && !in_use_.contains(other)) waiting.push_back(other);
      }
      return lab::SecondsLeft(queue_, {{index, time.elapsed, time.left}}, waiting, 1);
    });
    progress_.StartRun(static_cast<int>(index) + 1, run.plan.folder.filename().string());
    Outcome outcome = Outcome::kInterrupted;
    Run result;
    try {
      outcome = options_.train_here(run, progress_);
      if (outcome != Outcome::kInterrupted) result = ReadRun(run.plan.folder);
    } catch (const RunInUse&) {
      if (IsOnly()) throw;
      progress_.LeaveRun();
      // Another process took the run after its lock was tested.
      in_use_.insert(index);
      waiting_.insert(std::ranges::lower_bound(waiting_, index), index);
      return true;
    } catch (const RunError& error) {
      if (IsOnly()) throw;
      progress_.LeaveRun();
      ShowFailure(run, fmt::format("(status 1): {}", error.what()));
      return true;
    }
    if (outcome == Outcome::kInterrupted) {
      progress_.EndRun("saved");
      return false;
    }
    AddResult(index, result,
              outcome != Outcome::kSkipped ? ResultOf::kThisCommand
              : was_done                   ? ResultOf::kEarlierCommand
                                           : ResultOf::kOtherProcess,
              0);
    return true;
  }

  // Starts runs and waits for one to end. Returns false if none is running.
  bool TrainChildren() {
    StartRuns();
    if (children_.running() == 0) return false;
    Take(children_.Wait(kLookMilliseconds));
    ShowProgress();
    return true;
  }

  // Returns true if another process has trained the run, which is then done, or is training it.
  bool IsTakenByOthers(size_t index) {
    QueuedRun& run = queue_.runs[index];
    in_use_.erase(index);
    if (options_.has_result ? options_.has_result(index) : queue_.FindResult(run)) {
      AddResult(index, ReadRun(run.plan.folder), ResultOf::kOtherProcess, 0);
      return true;
    }
    return IsInUseByOthers(index);
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
        AddResult(child.id, ReadRun(run.plan.folder), ResultOf::kThisCommand, seconds);
      } else if (child.status == 1 && IsTakenByOthers(child.id)) {
        // Another process took it after the test before its start.
        if (!run.done) waiting_.insert(std::ranges::lower_bound(waiting_, child.id), child.id);
      } else if (!stopping_) {
        ShowFailure(run,
                    fmt::format("({}): {}",
                                child.status < 128 ? fmt::format("status {}", child.status)
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
    std::vector<RunningRun> running;
    std::vector<std::string> fields;
    for (const auto& [run, started] : running_) {
      running.push_back({run, SecondsSince(started)});
      std::string name = NameOf(queue_.runs[run]);
      if (const std::optional<ProgressReport> report = children_.Report(run)) {
        running.back().left = report->seconds_left;
        name += report->phase.empty() ? fmt::format(" {:.0f}%", 100 * report->fraction)
                                      : " " + report->phase;
      }
      fields.push_back(std::move(name));
    }
    std::vector<size_t> waiting;
    for (const size_t run : waiting_) {
      if (!in_use_.contains(run)) waiting.push_back(run);
    }
    std::optional<double> seconds = lab::SecondsLeft(queue_, running, waiting, options_.jobs);
    if (options_.hours) seconds = std::min(seconds.value_or(SecondsLeft()), SecondsLeft());
    if (seconds) fields.insert(fields.begin(), FormatDuration(*seconds) + " left");
    fields.insert(fields.begin(), fmt::format("{}/{} done", done_, queue_.runs.size()));
    progress_.ShowFields(std::move(fields));
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
  Progress& progress_;
  size_t done_;
  size_t failed_ = 0, failed_by_data_ = 0;
  bool stopping_ = false;
};

}  // namespace

int TrainQueue(RunQueue& queue, const RunnerOptions& options, Progress& progress) {
  return Runner(queue, options, progress).Train();
}

}  // namespace planish::lab
