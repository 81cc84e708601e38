#include "lab/engine/train.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/analysis/format.h"
#include "lab/commands/commands.h"
#include "lab/commands/options.h"
#include "lab/data/source.h"
#include "lab/engine/load_data.h"
#include "lab/engine/machine.h"
#include "lab/engine/processes.h"
#include "lab/engine/sweep.h"
#include "lab/error.h"
#include "lab/run/posix_file.h"
#include "lab/run/results.h"
#include "lab/tasks/tasks.h"
#include "lab/terminal/interrupt.h"
#include "lab/terminal/progress.h"

namespace planish::lab {

namespace {

namespace fs = std::filesystem;

struct TrainFlags {
  std::string task;
  std::optional<std::string> norms, cells, batch_sizes;
  std::string preset, data, device = "cpu";
  std::vector<std::string> sets;
  std::optional<int> seeds;
  std::optional<int64_t> seed;
  int threads = 0;
  double checkpoint_seconds = 60;
  fs::path out = "runs";
  bool json = false, quiet = false;
};

SweepRequest MakeRequest(const TrainFlags& flags) {
  if (flags.out.empty()) throw UsageError("[train] --out must be a folder, got an empty name");
  SweepRequest request;
  request.preset = flags.preset;
  request.out = flags.out;
  if (flags.norms) request.values.emplace_back("norm", SplitList("--norm", *flags.norms));
  if (flags.cells) request.values.emplace_back("cell", SplitList("--cell", *flags.cells));
  if (flags.batch_sizes) {
    request.values.emplace_back("batch_size", SplitList("--batch-size", *flags.batch_sizes));
  }
  for (const std::string& set : flags.sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError(fmt::format("[train] --set must be key=value, got \"{}\"", set));
    }
    request.values.emplace_back(
        set.substr(0, equals), SplitList("--set " + set.substr(0, equals), set.substr(equals + 1)));
  }
  if (flags.seed && flags.seeds) {
    throw UsageError("[train] --seed and --seeds must not be given together");
  }
  if (flags.seed) {
    request.seeds = {*flags.seed};
  } else {
    for (int seed = 1; seed <= flags.seeds.value_or(1); ++seed) request.seeds.push_back(seed);
  }
  return request;
}

// Sets the number of shards to that of the processes unless it is given.
void AddShards(SweepRequest& request, int processes) {
  const bool has_shards = std::ranges::any_of(
      request.values, [](const auto& value) { return value.first == "shards"; });
  if (processes > 1 && !has_shards) {
    request.values.emplace_back("shards", std::vector{std::to_string(processes)});
  }
}

// Data of a sweep. Successive runs share it if their data settings agree.
class SharedData {
 public:
  SharedData(const Task& task, std::optional<fs::path> folder, const std::vector<RunPlan>& plans)
      : task_(task), folder_(std::move(folder)), plans_(plans) {}

  // Returns the data for `settings`. Loading other data invalidates the earlier result. Throws
  // UsageError if the data does not fit any of the runs that share it, before the first of them
  // starts.
  const Dataset& For(const Settings& settings, Progress& progress) {
    if (data_ && Key(settings) == key_) return *data_;
    data_.reset();
    data_ = LoadData(task_, settings, folder_);
    key_ = Key(settings);
    progress.Note("data: " + data_->about.description);
    for (const RunPlan& plan : plans_) {
      if (Key(plan.settings) == key_) task_.Check(plan.settings, *data_);
    }
    return *data_;
  }

 private:
  std::string Key(const Settings& settings) const {
    std::string key;
    for (const std::string& name : task_.data_settings) {
      key += Spelled(settings.values().at(name)) + "|";
    }
    return key;
  }

  const Task& task_;
  std::optional<fs::path> folder_;
  const std::vector<RunPlan>& plans_;
  std::string key_;
  std::unique_ptr<Dataset> data_;
};

// Returns text like "test error 2.31% after 10 epochs, 12.3 s of training". The test metric can
// exist only for the best weights.
std::string Headline(const Task& task, const Run& run) {
  const auto metric = std::ranges::find(task.metrics, task.report.headline, &MetricSpec::name);
  const RunResult& result = *run.result;
  const auto value_in = [&](const std::map<std::string, double>& values) {
    const auto found = values.find(metric->name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
  std::optional<double> value = value_in(result.final_values);
  if (!value && result.best) value = value_in(result.best->values);
  if (!value) throw CannotRead(run.folder / "result.json", metric->name + " is missing");
  return fmt::format("{} {} after {:g} epochs, {:.1f} s of training", metric->label,
                     FormatValue(*metric, *value), result.epochs, result.seconds);
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

int RunTrain(const TrainFlags& flags) {
  const c10::Device device = ParseDevice(flags.device);
  const Task& task = FindTask(flags.task);
  SweepRequest request = MakeRequest(flags);
  PlanSweep(task, request);  // for its errors, before this process waits for others
  const std::optional<fs::path> folder = DataFolder(flags.data);
  const std::unique_ptr<Processes> processes = Processes::FromEnvironment();
  const bool is_first = processes->is_first();
  AddShards(request, processes->size());
  const std::vector<RunPlan> plans = PlanSweep(task, request);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  const InterruptGuard interrupts;
  StopWithStarter();
  const std::map<std::string, std::string> stamps = MachineStamps();
  TrainOptions options;
  options.device = device;
  options.processes = processes.get();
  options.checkpoint_seconds = flags.checkpoint_seconds;
  options.stop = options.stop_evaluation = [] { return Interrupted() != 0; };

  ProgressOutput output = ProgressOutput::Stderr();
  if (!is_first) output.write = [](std::string_view) {};
  Progress progress(static_cast<int>(plans.size()), StderrProgressMode(flags.quiet), output);
  if (folder) options.data = fs::absolute(*folder).lexically_normal().string();
  SharedData data(task, folder, plans);
  std::vector<Run> runs;
  int skipped = 0, diverged = 0;
  for (const RunPlan& plan : plans) {
    const Dataset& dataset = data.For(plan.settings, progress);
    Outcome outcome = Outcome::kInterrupted;
    if (Interrupted() == 0) {
      progress.StartRun(static_cast<int>(runs.size()) + 1, plan.folder.filename().string());
      outcome = Train(task, dataset, plan, stamps, options, progress);
      if (outcome == Outcome::kInterrupted) progress.EndRun("saved");
    }
    if (outcome == Outcome::kInterrupted) {
      if (Interrupted() == 0) {
        throw RunError(
            "another process was stopped: the run is saved. Run the same command again to "
            "continue");
      }
      progress.Warn(
          fmt::format("stopped: {} of {} runs done. Run the same command again to continue.",
                      runs.size(), plans.size()));
      return 128 + Interrupted();
    }
    runs.push_back(ReadRun(plan.folder));
    const RunResult& result = *runs.back().result;
    if (outcome == Outcome::kSkipped) ++skipped;
    if (result.status == "diverged") ++diverged;
    const std::string summary =
        result.status == "diverged" ? "diverged: " + result.message : Headline(task, runs.back());
    progress.EndRun(outcome == Outcome::kSkipped ? "done before: " + summary : summary);
    if (flags.json && is_first) {
      Print(JsonLine(runs.back()));
      FlushStdout();
    }
  }
  if (skipped > 0) {
    progress.Note(fmt::format("{} of {} runs had been done before", skipped, plans.size()));
  }
  if (diverged > 0) {
    progress.Warn(fmt::format("warning: {} of {} runs diverged", diverged, plans.size()));
  }
  if (!flags.json && is_first) Print(RenderTable(runs, StdoutTable()));
  return 0;
}

}  // namespace

void AddTrain(CLI::App& app, Action& action) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* train =
      app.add_subcommand("train", "Train a task with each given norm or cell, batch size and seed");
  train->footer(
      std::string(
          "Lists of values train each combination and seed, each as a run with its own folder,\n"
          "OUT/TASK/PRESET-NORM-bBATCH[-KEY=VALUE...]-sSEED (CELL for NORM in recurrent tasks):\n"
          "  config.json                   settings, data and machine of the run\n"
          "  metrics.jsonl                 a line for each evaluation\n"
          "  events.out.tfevents.*         the same for TensorBoard\n"
          "  checkpoint/state.safetensors  weights and optimizer\n"
          "  result.json                   result of the run\n"
          "Skips finished runs and continues unfinished ones; with the same number of threads, a\n"
          "continued run has the bits of an uninterrupted one. Prints a table to stdout at the "
          "end.\n"
          "Progress goes to stderr, in plain lines if that is no terminal, or TERM=dumb or "
          "NO_COLOR is\n"
          "set.\n\n"
          "Example:\n"
          "  planish train pi-mnist --preset small --norm none,batch,layer --batch-size 128,4 "
          "--seeds 3\n"
          "  planish train char-lm --cell lstm,ln-lstm,ln-gru --data text.txt\n\n") +
      kExitStatuses);
  train->add_option("TASK", flags->task, "Task of 'planish list'")->type_name("")->required();
  train->add_option("--norm", flags->norms, "Norms, separated by commas (default: the task's)")
      ->type_name("LIST");
  train
      ->add_option("--cell", flags->cells,
                   "Recurrent cells, separated by commas (default: the task's)")
      ->type_name("LIST");
  train
      ->add_option("--batch-size", flags->batch_sizes,
                   "Batch sizes, separated by commas (default: the preset's)")
      ->type_name("LIST");
  train->add_option("--seeds", flags->seeds, "Train with each of the seeds 1 to N (default: 1)")
      ->type_name("N")
      ->check(WholeNumber("train", "--seeds", 1, 1000));
  train->add_option("--seed", flags->seed, "Train with only this seed")
      ->type_name("SEED")
      ->check(WholeNumber("train", "--seed", 0, int64_t{1} << 53));
  train
      ->add_option("--preset", flags->preset,
                   "A preset of 'planish list TASK' (default: the first), such as\n"
                   "paper: as printed; small: seconds a run; smoke: a test that it runs")
      ->type_name("NAME")
      ->check(NotEmpty("train", "--preset"));
  train
      ->add_option("--set", flags->sets, "Change a setting of 'planish list TASK'; can be repeated")
      ->type_name("KEY=VALUE[,VALUE...]")
      ->expected(1)
      ->take_all();
  AddDataOption(*train, flags->data,
                "Folder or text file of the data\n"
                "(default: $PLANISH_DATA, else synthetic data)");
  train->add_option("--out", flags->out, "Folder for the runs (default: runs)")
      ->type_name("FOLDER");
  AddThreadsOption(*train, flags->threads);
  train
      ->add_option("--device", flags->device,
                   "Where to train: cpu (default), cuda or cuda:N, a GPU")
      ->type_name("NAME");
  train
      ->add_option("--checkpoint-seconds", flags->checkpoint_seconds,
                   "Maximum training time that a crash loses (default: 60)")
      ->type_name("SECONDS")
      ->check(Number("train", "--checkpoint-seconds", "a number of seconds",
                     [](double seconds) { return seconds >= 0; }));
  train->add_flag("--json", flags->json, "Print a line of JSON for each run instead of a table");
  train->add_flag("--quiet", flags->quiet, "Print only warnings and errors, no progress");
  train->callback([&action, flags] { action = [flags] { return RunTrain(*flags); }; });
}

}  // namespace planish::lab
