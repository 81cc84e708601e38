#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/analysis/arena.h"
#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/commands/runs.h"
#include "lab/data/source.h"
#include "lab/engine/device.h"
#include "lab/engine/processes.h"
#include "lab/engine/sweep.h"
#include "lab/error.h"
#include "lab/queue/queue.h"
#include "lab/queue/tuning.h"
#include "lab/report/arena_html.h"
#include "lab/run/results.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

namespace {

namespace fs = std::filesystem;

struct TrainFlags {
  RunFlags runs;
  std::optional<int> seeds;
  std::optional<int64_t> seed;
  std::optional<fs::path> tuned;
};

std::vector<int64_t> SeedsOf(const TrainFlags& flags) {
  if (flags.seed && flags.seeds) {
    throw UsageError("[train] --seed and --seeds must not be given together");
  }
  if (flags.seed) return {*flags.seed};
  std::vector<int64_t> seeds;
  for (int seed = 1; seed <= flags.seeds.value_or(1); ++seed) seeds.push_back(seed);
  return seeds;
}

// Returns the runs of `request`, each at the rate that the tuning runs below `folder` chose.
std::vector<QueuedRun> QueueTuned(const Task& task, const SweepRequest& request,
                                  const fs::path& folder, bool is_quiet) {
  for (const auto& [name, values] : request.values) {
    if (name == kRateSetting) {
      throw UsageError("[train] --tuned and --set lr must not be given together");
    }
  }
  const std::vector<Run> found = FindReadableRuns({folder});
  std::vector<QueuedRun> runs;
  for (const SweepRequest& combination : Combinations(request)) {
    SweepRequest one = combination;
    const RunPlan plan = PlanSweep(task, one).front();
    const Tuning tuning = FindTuning(task, plan, found);
    const std::string entry =
        fmt::format("{} {}", task.report.compare, plan.settings.Text(task.report.compare));
    if (!tuning.chosen) {
      throw UsageError(fmt::format(
          "[train] --tuned must have a chosen rate for {} with these settings, but {} in {}: "
          "planish tune {} --preset {} --lr LOW..HIGH trains them",
          entry,
          tuning.trials.empty() ? "there are no tuning runs"
          : !tuning.is_complete ? "tuning runs are unfinished"
                                : "all tuning runs diverged",
          folder.string(), task.name, plan.preset));
    }
    const RateTrial& trial = tuning.trials[*tuning.chosen];
    if (!is_quiet) {
      Inform(fmt::format("{}: lr {}, chosen from {} rates{}", entry, RateText(trial),
                         tuning.trials.size(),
                         tuning.IsAtTheEdge() ? ", at the edge of the grid" : ""));
    }
    one.values.emplace_back(kRateSetting, std::vector{RateText(trial)});
    std::ranges::move(QueueSweep(task, one, 0), std::back_inserter(runs));
  }
  // Orders runs seed by seed, like other sweeps.
  std::ranges::stable_sort(runs, {}, [&](const QueuedRun& run) {
    return std::ranges::find(request.seeds, run.plan.seed) - request.seeds.begin();
  });
  return runs;
}

// Prints which value is best at its own rate. `runs` are compared; the tuning runs below `folder`
// say at which rates.
void PrintRanking(const fs::path& folder, std::vector<Run> runs) {
  for (Run& run : FindRuns({folder}).runs) {
    if (IsTuningRun(run)) runs.push_back(std::move(run));
  }
  const RunConfig config = runs.front().config;
  std::erase_if(runs, [&](const Run& run) {
    return run.config.task != config.task || run.config.preset != config.preset ||
           run.config.data.sha256 != config.data.sha256;
  });
  if (std::ranges::none_of(runs, IsTuningRun)) {
    Warn("the rates were tuned on other data");
    return;
  }
  PrintText(BriefRanking(runs));
}

// Returns a run's line of --json.
std::string JsonLine(const Run& run) {
  nlohmann::ordered_json result;
  to_json(result, *run.result);
  nlohmann::ordered_json line = {{"folder", run.folder.string()},
                                 {"task", run.config.task},
                                 {"preset", run.config.preset},
                                 {"seed", run.config.seed},
                                 {"settings", run.config.settings}};
  line.update(result);
  // The folder's name can contain bytes that are not UTF-8.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// Sets the number of shards to that of the processes unless it is given.
void AddShards(SweepRequest& request, int processes) {
  const bool has_shards = std::ranges::any_of(
      request.values, [](const auto& value) { return value.first == "shards"; });
  if (processes > 1 && !has_shards) {
    request.values.emplace_back("shards", std::vector{std::to_string(processes)});
  }
}

int RunTrain(const TrainFlags& flags) {
  // Errors come before this process waits for others.
  ParseDevice(flags.runs.device);
  const Task& task = FindTask(flags.runs.task);
  SweepRequest request = MakeRequest("train", task, flags.runs);
  request.seeds = SeedsOf(flags);
  PlanSweep(task, request);
  DataFolder(flags.runs.data);
  if (flags.runs.jobs.value_or(1) > 1) RefuseSeveralProcesses("train");
  const std::unique_ptr<Processes> processes = Processes::FromEnvironment();
  const bool is_first = processes->is_first();
  AddShards(request, processes->size());
  const bool is_quiet = flags.runs.quiet || !is_first;
  RunQueue queue = QueueOf(task, flags.tuned ? QueueTuned(task, request, *flags.tuned, is_quiet)
                                             : QueueSweep(task, request, 0));
  const auto summary = [&](const Run& run) {
    return fmt::format("{} after {:g} epochs, {:.1f} s of training",
                       FinalMetricText(run, task.report.headline), run.result->epochs,
                       run.result->seconds);
  };
  const auto print = [&](const Run& run) {
    if (!flags.runs.json || !is_first) return;
    Print(JsonLine(run));
    FlushStdout();
  };
  const TrainedRuns trained = TrainRuns(task, queue, flags.runs, *processes, summary, print);
  if (trained.status > 128) return trained.status;
  std::vector<Run> runs;
  for (const std::optional<Run>& run : trained.runs) {
    if (!run) continue;
    runs.push_back(*run);
    runs.back().is_rate_tuned = flags.tuned.has_value();
  }
  if (!flags.runs.json && is_first && !runs.empty()) {
    Print(RenderTable(runs, StdoutTable()));
    if (trained.status == 0 && runs.size() < trained.runs.size()) {
      Warn(fmt::format("the table lacks {} of {} runs; the same command completes it",
                       trained.runs.size() - runs.size(), trained.runs.size()));
    }
    if (flags.tuned) PrintRanking(*flags.tuned, std::move(runs));
  }
  return trained.status;
}

}  // namespace

void AddTrain(CLI::App& app, Action& action) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* train =
      app.add_subcommand("train", "Train a task with each given norm or cell, batch size and seed");
  train->footer(
      std::string(
          "Trains each combination of the given values and seeds, each as a run with its own "
          "folder,\n"
          "OUT/TASK/PRESET-NORM-bBATCH[-KEY=VALUE...]-sSEED (CELL for NORM in recurrent tasks):\n"
          "  config.json                   settings, data and machine of the run\n"
          "  metrics.jsonl                 a line for each evaluation\n"
          "  events.out.tfevents.*         the same for TensorBoard\n"
          "  checkpoint/state.safetensors  weights and optimizer\n"
          "  result.json                   result of the run\n"
          "  predictions.csv.gz            predictions for the test items, in some tasks\n"
          "Without --norm, trains all norms that the task compares: 'planish list TASK --preset "
          "NAME'\n"
          "shows these runs. Skips finished runs and continues unfinished ones; with the same "
          "number of\n"
          "threads, a continued run has the bits of an uninterrupted one. A run that another "
          "process\n"
          "trains is left to it. Names a run that fails, and continues with the others.\n"
          "Prints a table to stdout at the end. Progress goes to stderr, in plain lines if that is "
          "no\n"
          "terminal, or TERM=dumb or NO_COLOR is set.\n\n"
          "Example:\n"
          "  planish train pi-mnist --preset small --norm none,batch,layer --batch-size 128,4 "
          "--seeds 3\n"
          "  planish train char-lm --cell lstm,ln-lstm,ln-gru --data text.txt\n"
          "  planish train rt --preset small --seeds 5 --jobs 2 --tuned runs\n\n") +
      kExitStatuses);
  AddRunOptions(*train, flags->runs);
  train->add_option("--seeds", flags->seeds, "Train with each of the seeds 1 to N (default: 1)")
      ->type_name("N")
      ->check(WholeNumber("train", "--seeds", 1, 1000));
  train->add_option("--seed", flags->seed, "Train with only this seed")
      ->type_name("SEED")
      ->check(WholeNumber("train", "--seed", 0, int64_t{1} << 53));
  train
      ->add_option("--tuned", flags->tuned,
                   "Use the learning rates that 'planish tune' has chosen by the\n"
                   "runs in FOLDER")
      ->type_name("FOLDER")
      ->check(NotEmpty("train", "--tuned"));
  AddTrainingOptions(*train, flags->runs, "Print a line of JSON for each run instead of a table");
  train->callback([&action, flags] { action = [flags] { return RunTrain(*flags); }; });
}

}  // namespace planish::lab
