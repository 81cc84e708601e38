#include "lab/commands/queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ratio>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/data/source.h"
#include "lab/engine/device.h"
#include "lab/error.h"
#include "lab/queue/runner.h"
#include "lab/run/posix_file.h"
#include "lab/terminal/interrupt.h"
#include "lab/terminal/progress.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

int TrainOnStderr(RunQueue& queue, const RunnerOptions& options, bool is_quiet) {
  const InterruptGuard interrupts;
  Progress progress(static_cast<int>(queue.runs.size()), StderrProgressMode(is_quiet));
  return TrainQueue(queue, options, progress);
}

// Trains stage after stage. Adds the finished runs to `done`. Returns the exit status of the last
// stage.
int TrainStages(const std::function<RunQueue()>& next_stage, RunnerOptions options, bool is_quiet,
                size_t& done) {
  const auto start = std::chrono::steady_clock::now();
  const std::optional<double> hours = options.hours;
  for (int status = 0;;) {
    RunQueue stage = next_stage();
    if (stage.runs.empty()) return status;
    if (hours) {
      options.hours = *hours - std::chrono::duration<double, std::ratio<3600>>(
                                   std::chrono::steady_clock::now() - start)
                                   .count();
      if (*options.hours <= 0) return status;
    }
    status = TrainOnStderr(stage, options, is_quiet);
    done += stage.Done();
    if (status != 0 || stage.Done() < stage.runs.size()) return status;
  }
}

}  // namespace

int QueueFlags::Jobs() const { return jobs.value_or(CoresForEach(threads.value_or(1))); }

std::vector<std::string> QueueFlags::TrainArguments() const {
  const int each = threads.value_or(divides_cores ? CoresForEach(Jobs()) : 1);
  std::vector<std::string> arguments = {"--threads", std::to_string(each)};
  if (!data.empty()) arguments.insert(arguments.end(), {"--data", data});
  if (device != "cpu") arguments.insert(arguments.end(), {"--device", device});
  return arguments;
}

void AddQueueOptions(CLI::App& command, QueueFlags& flags) {
  const std::string name = command.get_name();
  command
      .add_option("--hours", flags.hours,
                  "Start only runs that fit, and stop the others then (default: no limit)")
      ->type_name("HOURS")
      ->check(Number(name, "--hours", "a number above 0", [](double hours) { return hours > 0; }));
  AddJobsOption(command, flags.jobs, "Runs at once (default: one for each core)");
  command
      .add_option("--threads", flags.threads,
                  flags.divides_cores ? "Threads of each run (default: the cores divided by --jobs)"
                                      : "Threads of each run (default: 1)")
      ->type_name("N")
      ->check(WholeNumber(name, "--threads", 1, 1024));
  AddDataOption(command, flags.data,
                "Folder of the data (default: $PLANISH_DATA, else synthetic data)");
  command
      .add_option("--device", flags.device, "Where to train: cpu (default), cuda or cuda:N, a GPU")
      ->type_name("NAME");
  command.add_flag("--dry-run", flags.dry_run, "Print the plan and exit");
  command.add_flag("--quiet", flags.quiet, "Print only the plan, warnings and errors, no progress");
}

int TrainAndReport(RunQueue& queue, const std::string& table, const QueueFlags& flags,
                   const fs::path& out, const std::function<RunQueue()>& next_stage) {
  ParseDevice(flags.device);
  RefuseSeveralProcesses("planish");
  const bool has_data = DataFolder(flags.data).has_value();
  const int jobs = flags.Jobs();
  const QueueSchedule schedule = MakeSchedule(queue, jobs, flags.hours);
  std::string text = table;
  text += fmt::format(
      "\n{} of {} runs to do{}.\n", schedule.runs, queue.runs.size(),
      schedule.runs > 0 ? fmt::format(", {} at once: {}", jobs, Duration(schedule)) : "");
  if (schedule.left > 0) {
    text += fmt::format("{} more do not fit into --hours {:g}.\n", schedule.left, *flags.hours);
  }
  if (!has_data) text += "There is no --data: the tasks use synthetic data.\n";
  Print(text);
  FlushStdout();
  if (flags.dry_run) return 0;

  // Created here once, not in each run.
  CreateFolders(out);
  RunnerOptions options;
  options.jobs = jobs;
  options.hours = flags.hours;
  options.arguments = flags.TrainArguments();
  size_t done = queue.Done();
  const int status = next_stage ? TrainStages(next_stage, options, flags.quiet, done)
                                : TrainOnStderr(queue, options, flags.quiet);
  if (status > 128) return status;
  if (std::max(done, queue.Done()) > 0) {
    const std::vector<Run> runs = FindReadableRuns({out});
    const fs::path report = out / "report.html";
    const ReportExtras extras{.looks = FindReadableLooks({out})};
    WriteReport(runs, report, extras);
    PrintText(fmt::format("\n{}report: {}\n", Findings(runs, 2, extras),
                          fs::absolute(report).lexically_normal().string()));
  }
  return status;
}

}  // namespace planish::lab
