#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <ratio>
#include <string>
#include <system_error>
#include <vector>

#include "lab/analysis/sequential.h"
#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/commands/queue.h"
#include "lab/engine/sweep.h"
#include "lab/error.h"
#include "lab/report/power_table.h"
#include "lab/reproduce/arena_plan.h"
#include "lab/reproduce/decide_plan.h"
#include "lab/reproduce/plan.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

namespace {

namespace fs = std::filesystem;

constexpr char kThenDecides[] =
    "\nThen more seeds for the claims that are open and can be decided.\n";

struct ReproduceFlags {
  std::string paper, preset;
  std::optional<std::string> tasks, norms;
  std::optional<int> seeds;
  std::optional<fs::path> out;
  bool power = false, until_decided = false;
  QueueFlags queue;
};

// Prints how many seeds each claim of the paper needs, by the runs in `out`.
int PrintPower(const Paper& paper, const fs::path& out) {
  const std::vector<Run> runs = FindReadableRuns({out});
  const std::string table = RenderPower(paper, runs, FindReadableLooks({out}), StdoutTable());
  if (!table.empty()) {
    PrintText(fmt::format("{}\n\n{}", paper.title, table));
    return 0;
  }
  throw DataError(fmt::format("{} has no run of {}", out.string(), paper.name));
}

std::string Outcome(const DecideRow& row) {
  switch (row.status) {
    case DecideRow::Status::kDecided:
      return row.power.contrast.sign < 0 ? "opposite" : "holds";
    case DecideRow::Status::kClaimDecided:
      return "claim is decided";
    case DecideRow::Status::kNotAsked:
      return "not asked for";
    case DecideRow::Status::kHopeless:
      return "hopeless";
    case DecideRow::Status::kAllSeeds:
      return "open with all seeds";
    case DecideRow::Status::kTooLong:
      return fmt::format("too long: {} h", HoursText(*row.minutes));
    case DecideRow::Status::kGoesOn:
      return fmt::format("{} of {}, {} h", row.power.seeds, row.test.planned,
                         HoursText(*row.minutes));
  }
  return "";
}

std::string RenderDecisions(const Paper& paper, const std::vector<DecideRow>& rows) {
  std::vector<ClaimPower> powers;
  std::vector<std::string> outcomes;
  for (const DecideRow& row : rows) {
    powers.push_back(row.power);
    outcomes.push_back(Outcome(row));
  }
  return fmt::format("{}\n\n{}", paper.title,
                     RenderPowerRows(paper, powers, "outcome", outcomes, StdoutTable()));
}

// Adds seeds until the paper's open claims are decided.
int ReproduceUntilDecided(const Paper& paper, const ReproduceRequest& request,
                          const QueueFlags& flags) {
  ReproducePlan usual = MakePlan(paper, request, FindTask);
  const fs::path file = request.out / kLooksFile;
  const auto start = std::chrono::steady_clock::now();
  std::error_code ignored;
  const bool has_looks = fs::exists(file, ignored);
  SequentialTests tests = has_looks ? ReadLooks(file) : SequentialTests{paper.name, {}};
  if (tests.paper != paper.name) {
    throw DataError(
        fmt::format("{} has looks at {}, not at {}", file.string(), tests.paper, paper.name));
  }
  const auto plan_next = [&] {
    double minutes = std::numeric_limits<double>::infinity();
    if (flags.hours) {
      const std::chrono::duration<double, std::ratio<60>> spent =
          std::chrono::steady_clock::now() - start;
      minutes = std::max(0.0, (*flags.hours * 60 - spent.count()) * flags.Jobs());
    }
    return MakeDecidePlan(paper, request, FindTask, FindReadableRuns({request.out}), tests,
                          minutes);
  };
  const auto is_done = [](const RunQueue& queue) { return queue.Done() == queue.runs.size(); };
  std::optional<DecidePlan> plan;
  if (is_done(usual.queue)) plan = plan_next();
  RunQueue& first = plan ? plan->all : usual.queue;
  const std::string table =
      plan ? RenderDecisions(paper, plan->rows) : RenderPlan(usual) + kThenDecides;
  const int status = TrainAndReport(first, table, flags, request.out, [&] {
    if (!is_done(usual.queue)) {
      usual.queue.FindResults();
      if (!is_done(usual.queue)) return usual.queue;
    }
    plan = plan_next();
    if (!plan->new_looks.empty()) {
      tests = plan->tests;
      WriteLooks(file, tests);
      if (!flags.quiet) PrintText(fmt::format("{}\n", fmt::join(plan->new_looks, "\n")));
    }
    return plan->stage;
  });
  if (!flags.dry_run && plan) PrintText("\n" + RenderDecisions(paper, plan->rows));
  return status;
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
  if (flags.power && flags.until_decided) {
    throw UsageError("[reproduce] --power must not be given with --until-decided");
  }
  if (flags.power) {
    if (is_arena) throw UsageError("[reproduce] --power must be given with a paper");
    return PrintPower(*paper, request.out);
  }
  if (flags.until_decided) {
    if (is_arena) throw UsageError("[reproduce] --until-decided must be given with a paper");
    return ReproduceUntilDecided(*paper, request, flags.queue);
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
      "--until-decided plans, for each open claim and column, the seeds for 80% power at the "
      "printed\n"
      "difference, and looks at it up to five times on the way. All looks together err in 5% of "
      "the\n"
      "cases: OUT/looks.json records them, and the report goes by them. It leaves out claims that "
      "do not\n"
      "fit into --hours, and stops where all seeds would decide with less than 10% probability.\n"
      "The arena goes task by task, and trains each norm first at every learning rate of a grid, "
      "then\n"
      "with other seeds at the rate that validation chose; --seeds counts these.\n\n"
      "Example:\n"
      "  planish reproduce xu2019 --data DIR --dry-run\n"
      "  planish reproduce xu2019 --data DIR --hours 6\n"
      "  planish reproduce xu2019 --out results/xu2019 --power\n"
      "  planish reproduce xu2019 --data DIR --until-decided --hours 12\n\n" +
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
  reproduce->add_flag("--until-decided", flags->until_decided,
                      "Then add seeds where a claim is open and can be decided");
  AddQueueOptions(*reproduce, flags->queue);
  reproduce->add_option("--out", flags->out, "Folder for the runs (default: runs/PAPER)")
      ->type_name("FOLDER");
  reproduce->callback([&action, flags] { action = [flags] { return RunReproduce(*flags); }; });
}

}  // namespace planish::lab
