#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/commands/queue.h"
#include "lab/engine/sweep.h"
#include "lab/error.h"
#include "lab/report/power_table.h"
#include "lab/reproduce/arena_plan.h"
#include "lab/reproduce/plan.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

namespace {

namespace fs = std::filesystem;

struct ReproduceFlags {
  std::string paper, preset;
  std::optional<std::string> tasks, norms;
  std::optional<int> seeds;
  std::optional<fs::path> out;
  bool power = false;
  QueueFlags queue;
};

// Prints how many seeds each claim of the paper needs, by the runs in `out`.
int PrintPower(const Paper& paper, const fs::path& out) {
  const std::vector<Run> runs = FindReadableRuns({out});
  const std::string table = RenderPower(paper, runs, StdoutTable());
  if (!table.empty()) {
    PrintText(fmt::format("{}\n\n{}", paper.title, table));
    return 0;
  }
  throw DataError(fmt::format("{} has no run of {}", out.string(), paper.name));
}

int RunReproduce(const ReproduceFlags& flags) {
  const bool is_arena = flags.paper == kArenaName;
  const Paper* const paper = is_arena ? nullptr : &FindPaper(flags.paper);
  ReproduceRequest request;
  request.preset = flags.preset;
  if (flags.tasks) request.tasks = SplitList("--tasks", *flags.tasks, "reproduce");
  if (flags.norms) request.norms = SplitList("--norms", *flags.norms, "reproduce");
  request.seeds = flags.seeds;
  request.out = flags.out.value_or(fs::path("runs") / flags.paper);
  if (request.out.empty()) {
    throw UsageError("[reproduce] --out must be a folder, got an empty name");
  }
  if (flags.power) {
    if (is_arena) throw UsageError("[reproduce] --power must be given with a paper");
    return PrintPower(*paper, request.out);
  }
  if (is_arena) {
    ArenaPlan plan = MakeArenaPlan(request, FindTask);
    return TrainAndReport(plan.all, plan.table, flags.queue, request.out,
                          [&] { return MakeArenaPlan(request, FindTask).stage; });
  }
  ReproducePlan plan = MakePlan(*paper, request, FindTask);
  return TrainAndReport(plan.queue, RenderPlan(plan), flags.queue, request.out);
}

}  // namespace

void AddReproduce(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ReproduceFlags>();
  CLI::App* reproduce =
      app.add_subcommand("reproduce", "Train every experiment of a paper's tables, and report");
  std::vector<std::string> papers;
  for (const Paper& paper : Papers()) papers.push_back("  " + paper.name + "  " + paper.title);
  papers.push_back(fmt::format("  {}   {}: no paper (docs/arena.md)", kArenaName, kArenaTitle));
  reproduce->footer(
      fmt::format("Papers:\n{}\n\n", fmt::join(papers, "\n")) +
      "Prints the plan first, with its expected hours. Runs go seed by seed: seed 1 of every "
      "column\n"
      "and norm, then seed 2, the paper's norms before others. Each run is a separate process,\n"
      "'planish train ...', with a folder as described there. Skips finished runs and continues\n"
      "unfinished ones: run the same command again after Ctrl-C, or with more --hours. Reports a "
      "run\n"
      "that fails, and continues with the others. Leaves a run to another process that is "
      "training\n"
      "it. Writes the report to OUT/report.html at the end.\n"
      "The arena goes task by task, and trains each norm first at every learning rate of a grid, "
      "then\n"
      "with other seeds at the rate that validation chose; --seeds counts these.\n\n"
      "Example:\n"
      "  planish reproduce xu2019 --data DIR --dry-run\n"
      "  planish reproduce xu2019 --data DIR --hours 6\n"
      "  planish reproduce xu2019 --out results/xu2019 --power\n\n" +
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
  reproduce->add_flag("--power", flags->power,
                      "Print how many seeds each claim needs, by the runs in\n"
                      "OUT, and train nothing");
  AddQueueOptions(*reproduce, flags->queue);
  reproduce->add_option("--out", flags->out, "Folder for the runs (default: runs/PAPER)")
      ->type_name("FOLDER");
  reproduce->callback([&action, flags] { action = [flags] { return RunReproduce(*flags); }; });
}

}  // namespace planish::lab
