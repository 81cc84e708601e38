#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/base/escape.h"
#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/commands/queue.h"
#include "lab/error.h"
#include "lab/queue/sweep_file.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

namespace {

namespace fs = std::filesystem;

struct SweepFlags {
  fs::path file;
  std::optional<fs::path> out;
  bool print = false;
  QueueFlags queue;
};

// Prints a command line for each run, also of those that are done: the lines keep their numbers.
// Throws UsageError for an argument that does not fit on a line.
int PrintCommands(const RunQueue& queue, const QueueFlags& flags) {
  const std::vector<std::string> more = flags.TrainArguments();
  std::string lines;
  for (const QueuedRun& run : queue.runs) {
    std::vector<std::string> arguments = {"planish"};
    arguments.insert(arguments.end(), run.arguments.begin(), run.arguments.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    for (size_t i = 1; i < arguments.size(); ++i) {
      if (arguments[i].find('\n') == std::string::npos) continue;
      throw UsageError(fmt::format("[sweep] {} must have no line break with --print, got {}",
                                   arguments[i - 1], Quoted(arguments[i])));
    }
    lines += ShellLine(arguments) + "\n";
  }
  Print(lines);
  FlushStdout();
  return 0;
}

int RunSweep(const SweepFlags& flags) {
  const fs::path out = flags.out.value_or(fs::path("runs") / flags.file.stem());
  if (out.empty()) throw UsageError("[sweep] --out must be a folder, got an empty name");
  SweepPlan plan = PlanSweepFile(flags.file, out, FindTask);
  if (flags.print) return PrintCommands(plan.queue, flags.queue);
  return TrainAndReport(plan.queue, RenderSweep(plan), flags.queue, out);
}

}  // namespace

void AddSweep(CLI::App& app, Action& action) {
  auto flags = std::make_shared<SweepFlags>();
  flags->queue.divides_cores = true;
  CLI::App* sweep =
      app.add_subcommand("sweep", "Train the tasks, settings and seeds of a file, and report");
  sweep->footer(
      std::string(
          "FILE is TOML. Each [[sweep]] names a task and any of its settings ('planish list "
          "TASK'),\n"
          "each with a value or a list. Every combination of them is one run for each seed:\n"
          "  preset = \"small\"                   # default of all sweeps\n"
          "  seeds = 3                          # 1 to 3; [1, 5] means exactly these\n"
          "  [[sweep]]\n"
          "  task = \"pi-mnist\"\n"
          "  norm = [\"none\", \"batch\", \"layer\"]\n"
          "  lr = [1e-3, 3e-4]\n"
          "Without norm, a sweep has all norms that the task compares.\n\n"
          "Prints the plan first. Runs go seed by seed, each as a process of its own, 'planish "
          "train "
          "...'.\n"
          "Skips finished runs and continues unfinished ones: run the same command again after "
          "Ctrl-C.\n"
          "Reports a run that fails, and continues with the others. Leaves a run to another "
          "process\n"
          "that is training it. Writes OUT/report.html at the end.\n"
          "With --print, other programs can train the runs, on several machines too. 'planish "
          "report'\n"
          "then takes all their folders.\n\n"
          "Example:\n"
          "  planish sweep rates.toml --jobs 4\n"
          "  planish sweep rates.toml --print | parallel\n"
          "  planish sweep rates.toml --print | sed -n ${SLURM_ARRAY_TASK_ID}p | sh\n\n") +
      kExitStatuses);
  sweep->add_option("FILE", flags->file, "Sweep in TOML")
      ->type_name("")
      ->required()
      ->check(NotEmpty("sweep", "FILE"));
  AddQueueOptions(*sweep, flags->queue);
  sweep->add_option("--out", flags->out, "Folder for the runs (default: runs/NAME of FILE)")
      ->type_name("FOLDER");
  sweep->add_flag("--print", flags->print, "Print a command for each run, and exit");
  sweep->callback([&action, flags] { action = [flags] { return RunSweep(*flags); }; });
}

}  // namespace planish::lab
