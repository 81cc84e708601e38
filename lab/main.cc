#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lab/data/source.h"
#include "lab/engine/machine.h"
#include "lab/engine/memory.h"
#include "lab/engine/sweep.h"
#include "lab/engine/train.h"
#include "lab/error.h"
#include "lab/report/format.h"
#include "lab/report/report.h"
#include "lab/run/results.h"
#include "lab/tasks/tasks.h"
#include "lab/terminal/interrupt.h"
#include "lab/terminal/progress.h"

// The planish command. Results go to stdout, progress and errors to stderr.
namespace planish::lab {
namespace {

namespace fs = std::filesystem;

constexpr int kFailure = 1;
constexpr int kUsage = 2;
constexpr int kData = 3;

constexpr char kExitStatuses[] =
    "Exit status: 0 done, 1 failure, 2 wrong usage, 3 data missing or wrong, 130 and 143 stopped "
    "by\n"
    "Ctrl-C or SIGTERM (the same command again goes on where it was).";

struct TrainFlags {
  std::string task;
  std::string norms, batch_sizes, preset = "paper", data, device = "cpu";
  std::vector<std::string> sets;
  int seeds = 1;
  int64_t seed = 0;
  bool has_seed = false;
  int threads = 0;
  double checkpoint_seconds = 60;
  fs::path out = "runs";
  bool json = false, quiet = false;
};

SweepRequest MakeRequest(const TrainFlags& flags) {
  SweepRequest request;
  request.preset = flags.preset;
  request.out = flags.out;
  if (!flags.norms.empty()) request.values.emplace_back("norm", SplitList("--norm", flags.norms));
  if (!flags.batch_sizes.empty()) {
    request.values.emplace_back("batch_size", SplitList("--batch-size", flags.batch_sizes));
  }
  for (const std::string& set : flags.sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError(fmt::format("[train] --set must be key=value but has \"{}\"", set));
    }
    request.values.emplace_back(
        set.substr(0, equals), SplitList("--set " + set.substr(0, equals), set.substr(equals + 1)));
  }
  if (flags.has_seed) {
    request.seeds = {flags.seed};
  } else {
    for (int seed = 1; seed <= flags.seeds; ++seed) request.seeds.push_back(seed);
  }
  return request;
}

// What decides the data of a run: runs for which it is the same share one Dataset.
std::string DataKey(const Task& task, const Settings& settings) {
  std::string key;
  for (const std::string& name : task.data_settings)
    key += Spelled(settings.values().at(name)) + "|";
  return key;
}

// "test error 2.31% after 10 epochs, 12.3 s of training".
std::string Headline(const Task& task, const RunResult& result) {
  const auto metric = std::ranges::find(task.metrics, task.report.headline, &MetricSpec::name);
  return fmt::format("{} {} after {:g} epochs, {:.1f} s of training", metric->label,
                     FormatValue(*metric, result.final_values.at(metric->name)), result.epochs,
                     result.seconds);
}

int RunTrain(const TrainFlags& flags) {
  if (flags.device != "cpu") {
    throw UsageError(fmt::format("[train] --device must be cpu but has \"{}\"", flags.device));
  }
  const Task& task = FindTask(flags.task);
  const std::vector<RunPlan> plans = PlanSweep(task, MakeRequest(flags));
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  const InterruptGuard interrupts;
  const std::optional<fs::path> folder = DataFolder(flags.data);
  const std::map<std::string, std::string> stamps = MachineStamps();
  TrainOptions options;
  options.checkpoint_seconds = flags.checkpoint_seconds;
  options.stop = [] { return Interrupted() != 0; };

  Progress progress(static_cast<int>(plans.size()), StderrProgressMode(flags.quiet));
  std::string data_key;
  std::unique_ptr<Dataset> data;
  std::vector<Run> runs;
  int skipped = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    const RunPlan& plan = plans[i];
    if (const std::string key = DataKey(task, plan.settings); !data || key != data_key) {
      data.reset();
      data = task.Load(plan.settings, folder);
      data_key = key;
      progress.Note("data: " + data->about.description);
    }
    const std::string name = plan.folder.filename().string();
    progress.StartRun(static_cast<int>(i) + 1, name);
    const Outcome outcome = Train(task, *data, plan, stamps, options, progress);
    if (outcome == Outcome::kInterrupted) {
      progress.EndRun("saved");
      fmt::print(stderr,
                 "stopped: {} of {} runs done. The same command again goes on where it was.\n", i,
                 plans.size());
      return 128 + Interrupted();
    }
    runs.push_back(ReadRun(plan.folder));
    const RunResult& result = *runs.back().result;
    if (outcome == Outcome::kSkipped) {
      ++skipped;
      progress.EndRun("already " + result.status);
    } else if (outcome == Outcome::kDiverged) {
      progress.EndRun("diverged: " + result.message);
    } else {
      progress.EndRun(Headline(task, result));
    }
    if (flags.json) {
      nlohmann::ordered_json line;
      to_json(line, result);
      line["folder"] = plan.folder.string();
      line["seed"] = plan.seed;
      line["settings"] = plan.settings.values();
      fmt::print("{}\n", line.dump());
      std::fflush(stdout);
    }
  }
  if (skipped > 0)
    fmt::print(stderr, "{} of {} runs had been done before\n", skipped, plans.size());
  if (!flags.json) fmt::print("{}", RenderTable(runs));
  return 0;
}

void AddTrain(CLI::App& app, std::function<int()>& action) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* train =
      app.add_subcommand("train", "Train a task with each norm, batch size and seed asked for");
  train->footer(
      std::string("A list makes a sweep: a run for each combination and seed, each in a folder of "
                  "its own,\n"
                  "OUT/TASK/PRESET-NORM-bBATCH[-KEY=VALUE...]-sSEED. Finished runs are skipped, "
                  "unfinished ones\n"
                  "go on where they were. 'planish list TASK' shows presets and settings.\n\n"
                  "Example:\n  planish train pi-mnist --preset small --norm none,batch,layer "
                  "--batch-size 128,4 --seeds 3\n\n") +
      kExitStatuses);
  train->add_option("task", flags->task, "Task, as 'planish list' names it")->required();
  train->add_option("--norm", flags->norms, "Norms, separated by commas");
  train->add_option("--batch-size", flags->batch_sizes, "Batch sizes, separated by commas");
  CLI::Option* seeds =
      train->add_option("--seeds", flags->seeds, "Train with the seeds 1 .. N (default 1)")
          ->check(CLI::Range(1, 1000));
  train->add_option("--seed", flags->seed, "Train with this seed alone")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 53))
      ->excludes(seeds);
  train->add_option("--preset", flags->preset, "Preset: paper, small or smoke")
      ->capture_default_str();
  train
      ->add_option("--set", flags->sets,
                   "Change a setting: key=value, or key=value,value for a sweep")
      ->expected(1)
      ->take_all();
  train->add_option("--data", flags->data,
                    "Folder with the data (default: $PLANISH_DATA, else data that planish makes)");
  train->add_option("--out", flags->out, "Folder for the runs")->capture_default_str();
  train->add_option("--threads", flags->threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  train->add_option("--device", flags->device, "Device: cpu")->capture_default_str();
  train
      ->add_option("--checkpoint-seconds", flags->checkpoint_seconds, "Seconds between checkpoints")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  train->add_flag("--json", flags->json, "Print a JSON line for each run instead of a table");
  train->add_flag("--quiet", flags->quiet, "No progress");
  train->callback([&action, flags, train] {
    flags->has_seed = train->count("--seed") > 0;
    action = [flags] { return RunTrain(*flags); };
  });
}

std::string Range(const SettingSpec& spec) {
  if (!spec.choices.empty()) return fmt::format("{}", fmt::join(spec.choices, "|"));
  return spec.value.is_number_integer() ? "whole number"
         : spec.value.is_number()       ? "number"
                                        : "text";
}

void AddList(CLI::App& app, std::function<int()>& action) {
  auto name = std::make_shared<std::string>();
  CLI::App* list = app.add_subcommand("list", "List the tasks, or one task's presets and settings");
  list->footer("Example:\n  planish list pi-mnist");
  list->add_option("task", *name, "A task");
  list->callback([&action, name] {
    action = [name] {
      if (name->empty()) {
        for (const auto& task : Tasks()) fmt::print("{:<12} {}\n", task->name, task->summary);
        return 0;
      }
      const Task& task = FindTask(*name);
      fmt::print("{}: {}\n\npresets\n", task.name, task.summary);
      for (const Preset& preset : task.presets)
        fmt::print("  {:<22} {}\n", preset.name, preset.help);
      fmt::print("\nsettings (--set key=value), with the paper preset's value\n");
      for (const SettingSpec& spec : task.settings) {
        fmt::print("  {:<22} {:<8} {} ({})\n", spec.name, Spelled(spec.value), spec.help,
                   Range(spec));
      }
      return 0;
    };
  });
}

void AddReport(CLI::App& app, std::function<int()>& action) {
  struct Flags {
    std::vector<fs::path> folders;
    fs::path output = "report.html";
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* report =
      app.add_subcommand("report", "Write an HTML report of the runs in some folders");
  report->footer(
      "The report is made from the runs' files alone.\n\nExample:\n  planish report runs -o "
      "report.html");
  report->add_option("folders", flags->folders, "Folders that hold runs")->required();
  report->add_option("-o,--output", flags->output, "File to write")->capture_default_str();
  report->callback([&action, flags] {
    action = [flags] {
      const std::vector<Run> runs = FindRuns(flags->folders);
      WriteReport(runs, flags->output);
      fmt::print("{}report: {}\n", Findings(runs),
                 fs::absolute(flags->output).lexically_normal().string());
      return 0;
    };
  });
}

void AddShow(CLI::App& app, std::function<int()>& action) {
  auto folders = std::make_shared<std::vector<fs::path>>();
  CLI::App* show = app.add_subcommand("show", "Show the runs in some folders as a table");
  show->footer("Example:\n  planish show runs");
  show->add_option("folders", *folders, "Folders that hold runs")->required();
  show->callback([&action, folders] {
    action = [folders] {
      fmt::print("{}", RenderTable(FindRuns(*folders)));
      return 0;
    };
  });
}

int Main(int argc, char** argv) {
  CLI::App app(
      "planish: train the experiments of the layer-normalisation papers with every norm, and "
      "report.");
  app.footer(std::string("Example:\n  planish train pi-mnist --preset small --norm none,layer "
                         "--batch-size 4 --seeds 3\n"
                         "  planish report runs -o report.html\n\n") +
             kExitStatuses);
  app.require_subcommand(1);
  app.set_version_flag("--version", VersionText);
  std::function<int()> action;
  AddTrain(app, action);
  AddReport(app, action);
  AddShow(app, action);
  AddList(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help and --version
    fmt::print(stderr, "planish: {} (see planish --help)\n", e.what());
    return kUsage;
  }
  return action();
}

}  // namespace
}  // namespace planish::lab

int main(int argc, char** argv) {
  using namespace planish::lab;
  KeepFreedMemory();
  try {
    return Main(argc, argv);
  } catch (const UsageError& e) {
    fmt::print(stderr, "planish: {}\n", e.what());
    return kUsage;
  } catch (const DataError& e) {
    fmt::print(stderr, "planish: {}\n", e.what());
    return kData;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "planish: out of memory\n");
    return kFailure;
  } catch (const std::exception& e) {
    // libtorch's errors carry a C++ backtrace after the first line.
    const std::string text = e.what();
    fmt::print(stderr, "planish: {}\n", text.substr(0, text.find('\n')));
    return kFailure;
  }
}
