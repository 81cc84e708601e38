#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "lab/base/escape.h"
#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/data/source.h"
#include "lab/engine/sweep.h"
#include "lab/error.h"
#include "lab/reproduce/children.h"
#include "lab/reproduce/plan.h"
#include "lab/tasks/tasks.h"
#include "lab/terminal/interrupt.h"
#include "lab/terminal/progress.h"

namespace planish::lab {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct ReproduceFlags {
  std::string paper, preset, data;
  std::optional<std::string> tasks, norms;
  std::optional<int> seeds, jobs;
  std::optional<double> hours;
  int threads = 1;
  std::optional<fs::path> out;
  bool dry_run = false, quiet = false;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs the training processes: chooses the next, tracks their results and reports progress.
class Runner {
 public:
  Runner(ReproducePlan& plan, const ReproduceFlags& flags, int jobs)
      : plan_(plan),
        flags_(flags),
        jobs_(static_cast<size_t>(jobs)),
        progress_(static_cast<int>(plan.runs.size()), StderrProgressMode(flags.quiet)),
        done_(plan.Done()) {
    for (size_t i = 0; i < plan.runs.size(); ++i) {
      if (!plan.runs[i].done) waiting_.push_back(i);
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
    if (Interrupted() != 0) {
      progress_.Warn(
          fmt::format("stopped: {} of {} runs done. Run the same command again to continue.", done_,
                      plan_.runs.size()));
      return 128 + Interrupted();
    }
    if (unfinished + waiting_.size() > 0) {
      progress_.Warn(fmt::format(
          "{} of {} runs done within --hours {:g}. Run the same command again to continue.", done_,
          plan_.runs.size(), *flags_.hours));
    }
    if (failed_ > 0)
      progress_.Warn(fmt::format("{} of {} runs failed", failed_, plan_.runs.size()));
    if (failed_ == 0) return 0;
    return failed_ == failed_by_data_ ? kDataStatus : 1;
  }

 private:
  static constexpr int kLookMilliseconds = 200;

  double SecondsLeft() const { return *flags_.hours * 3600 - SecondsSince(start_); }
  bool TimeIsUp() const { return flags_.hours && SecondsLeft() <= 0; }

  // Returns true if a run is expected to end in time.
  bool Fits(const PlannedRun& run) const {
    return !flags_.hours || plan_.estimates.Left(run).value_or(0) * 60 <= SecondsLeft();
  }

  void StartRuns() {
    for (auto next = waiting_.begin(); next != waiting_.end() && children_.running() < jobs_;) {
      const PlannedRun& run = plan_.runs[*next];
      if (!Fits(run)) {
        ++next;
        continue;
      }
      std::vector<std::string> arguments = run.arguments;
      arguments.insert(arguments.end(), {"--threads", std::to_string(flags_.threads), "--quiet"});
      if (!flags_.data.empty()) arguments.insert(arguments.end(), {"--data", flags_.data});
      children_.Start(*next, arguments);
      running_[*next] = Clock::now();
      next = waiting_.erase(next);
    }
  }

  void Take(const std::vector<Children::Ended>& ended) {
    for (const Children::Ended& child : ended) {
      PlannedRun& run = plan_.runs[child.id];
      const double seconds = SecondsSince(running_.at(child.id));
      running_.erase(child.id);
      if (child.status == 0) {
        run.done = true;
        ++done_;
        const RunResult result = *ReadRun(run.folder).result;
        if (result.status == "finished") {
          plan_.estimates.Add(run.column, run.norm,
                              (result.seconds + result.evaluation_seconds) / 60);
        }
        progress_.Note(fmt::format(
            "{}/{} {}  {}{}", done_, plan_.runs.size(), run.Name(), FormatDuration(seconds),
            result.status == "finished" ? "" : "  " + result.status + ": " + result.message));
      } else if (!stopping_) {
        ++failed_;
        progress_.Warn(fmt::format("{} failed ({}): {}", run.Name(),
                                   child.status < 128
                                       ? fmt::format("status {}", child.status)
                                       : fmt::format("signal {}", child.status - 128),
                                   child.error.empty() ? "no message" : child.error));
        if (child.status == kDataStatus) {
          ++failed_by_data_;
          LeaveOut(run.column);
        }
      }
    }
  }

  // If one run of a column cannot read its data, no run of that column can.
  void LeaveOut(size_t column) {
    const size_t count =
        std::erase_if(waiting_, [&](size_t run) { return plan_.runs[run].column == column; });
    if (count == 0) return;
    failed_ += count;
    failed_by_data_ += count;
    progress_.Warn(fmt::format("{}: the other {} runs of this column are left out",
                               plan_.columns[column].column->name, count));
  }

  void ShowProgress() {
    double minutes = 0;
    bool known = true;
    const auto add = [&](const PlannedRun& run, double seconds) {
      const std::optional<double> left = plan_.estimates.Left(run);
      known &= left.has_value();
      minutes += std::max(0.0, left.value_or(0) - seconds / 60);
    };
    std::vector<std::string> names;
    for (const auto& [run, started] : running_) {
      add(plan_.runs[run], SecondsSince(started));
      names.push_back(plan_.runs[run].Name());
    }
    for (const size_t run : waiting_) add(plan_.runs[run], 0);
    double seconds = minutes * 60 / static_cast<double>(jobs_);
    if (flags_.hours) seconds = std::min(seconds, SecondsLeft());
    progress_.Update(fmt::format("{}/{} runs done  {}{}", done_, plan_.runs.size(),
                                 known ? FormatDuration(seconds) + " left  " : "",
                                 fmt::join(names, ", ")));
  }

  static constexpr int kDataStatus = 3;  // see kExitStatuses

  ReproducePlan& plan_;
  const ReproduceFlags& flags_;
  size_t jobs_;
  Clock::time_point start_ = Clock::now();
  Children children_;
  std::vector<size_t> waiting_;                  // in order
  std::map<size_t, Clock::time_point> running_;  // run -> start time
  Progress progress_;
  size_t done_;
  size_t failed_ = 0, failed_by_data_ = 0;
  bool stopping_ = false;
};

int RunReproduce(const ReproduceFlags& flags) {
  const Paper& paper = FindPaper(flags.paper);
  ReproduceRequest request;
  request.preset = flags.preset;
  if (flags.tasks) request.tasks = SplitList("--tasks", *flags.tasks, "reproduce");
  if (flags.norms) request.norms = SplitList("--norms", *flags.norms, "reproduce");
  request.seeds = flags.seeds;
  request.out = flags.out.value_or(fs::path("runs") / paper.name);
  if (request.out.empty()) {
    throw UsageError("[reproduce] --out must be a folder, got an empty name");
  }
  const bool has_data = DataFolder(flags.data).has_value();
  ReproducePlan plan = MakePlan(paper, request, FindTask);

  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int jobs = flags.jobs.value_or(std::max(1, cores / flags.threads));
  const Schedule schedule = MakeSchedule(plan, jobs, flags.hours);
  std::string text = RenderPlan(plan);
  text += fmt::format(
      "\n{} of {} runs to do, {} at once: about {:.1f} hours{}.\n", schedule.runs, plan.runs.size(),
      jobs, schedule.hours,
      schedule.unknown > 0 ? fmt::format(" and {} runs of unknown length", schedule.unknown) : "");
  if (schedule.left > 0) {
    text += fmt::format("{} more do not fit into --hours {:g}.\n", schedule.left, *flags.hours);
  }
  if (!has_data) {
    text += "There is no --data: the tasks use synthetic data, not the paper's.\n";
  }
  Print(text);
  FlushStdout();
  if (flags.dry_run) return 0;

  // Created here once, not in each run.
  if (std::error_code error; fs::create_directories(request.out, error), error) {
    throw RunError(fmt::format("cannot create {} (--out): {}", Escaped(request.out.string()),
                               error.message()));
  }

  const int status = Runner(plan, flags, jobs).Train();
  if (status > 128) return status;
  if (plan.Done() > 0) {
    const std::vector<Run> runs = FindReadableRuns({request.out});
    const fs::path report = request.out / "report.html";
    WriteReport(runs, report);
    PrintText(fmt::format("\n{}report: {}\n", Findings(runs),
                          fs::absolute(report).lexically_normal().string()));
  }
  return status;
}

}  // namespace

void AddReproduce(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ReproduceFlags>();
  CLI::App* reproduce =
      app.add_subcommand("reproduce", "Train every experiment of a paper's tables, and report");
  std::vector<std::string> papers;
  for (const Paper& paper : Papers()) papers.push_back("  " + paper.name + "  " + paper.title);
  reproduce->footer(
      fmt::format("Papers:\n{}\n\n", fmt::join(papers, "\n")) +
      "Prints the plan first, with its expected hours. Runs go seed by seed: seed 1 of every "
      "column\n"
      "and norm, then seed 2, the paper's norms before others. Each run is a separate process,\n"
      "'planish train ...', with a folder as described there. Skips finished runs and continues\n"
      "unfinished ones: run the same command again after Ctrl-C, or with more --hours. Reports a "
      "run\n"
      "that fails, and continues with the others. Writes the report to OUT/report.html at the "
      "end.\n\n"
      "Example:\n"
      "  planish reproduce xu2019 --data DIR --dry-run\n"
      "  planish reproduce xu2019 --data DIR --hours 6\n\n" +
      kExitStatuses);
  reproduce->add_option("PAPER", flags->paper, "Paper")->type_name("")->required();
  reproduce->add_option("--preset", flags->preset, "Preset of every task (default: the paper's)")
      ->type_name("NAME")
      ->check(NotEmpty("reproduce", "--preset"));
  reproduce
      ->add_option("--tasks", flags->tasks,
                   "Table columns or tasks, separated by commas (default: all)")
      ->type_name("LIST");
  reproduce
      ->add_option("--norms", flags->norms,
                   "Norms, separated by commas, if a task has\n"
                   "them (default: each column's)")
      ->type_name("LIST");
  reproduce
      ->add_option("--seeds", flags->seeds,
                   "Train with each of the seeds 1 to N (default: each\n"
                   "column's, at least 3)")
      ->type_name("N")
      ->check(WholeNumber("reproduce", "--seeds", 1, 1000));
  reproduce
      ->add_option("--hours", flags->hours,
                   "Start only runs that fit, and stop the others then (default: no limit)")
      ->type_name("HOURS")
      ->check(Number("reproduce", "--hours", "a number above 0",
                     [](double hours) { return hours > 0; }));
  reproduce->add_option("--jobs", flags->jobs, "Runs at once (default: one for each core)")
      ->type_name("N")
      ->check(WholeNumber("reproduce", "--jobs", 1, 1024));
  reproduce->add_option("--threads", flags->threads, "Threads of each run (default: 1)")
      ->type_name("N")
      ->check(WholeNumber("reproduce", "--threads", 1, 1024));
  AddDataOption(*reproduce, flags->data,
                "Folder of the data (default: $PLANISH_DATA, else synthetic data)");
  reproduce->add_option("--out", flags->out, "Folder for the runs (default: runs/PAPER)")
      ->type_name("FOLDER");
  reproduce->add_flag("--dry-run", flags->dry_run, "Print the plan and exit");
  reproduce->add_flag("--quiet", flags->quiet,
                      "Print only the plan, warnings and errors, no progress");
  reproduce->callback([&action, flags] { action = [flags] { return RunReproduce(*flags); }; });
}

}  // namespace planish::lab
