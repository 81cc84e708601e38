#include "lab/commands/runs.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "lab/analysis/format.h"
#include "lab/commands/options.h"
#include "lab/data/source.h"
#include "lab/engine/device.h"
#include "lab/engine/load_data.h"
#include "lab/engine/machine.h"
#include "lab/engine/processes.h"
#include "lab/engine/settings_of_data.h"
#include "lab/engine/train.h"
#include "lab/error.h"
#include "lab/queue/runner.h"
#include "lab/run/former_settings.h"
#include "lab/run/posix_file.h"
#include "lab/tasks/tasks.h"
#include "lab/terminal/interrupt.h"
#include "lab/terminal/progress.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Setting that is also an option, so that it needs no --set. A row here adds one.
struct SettingOption {
  const char* setting;
  const char* names;
  const char* type;
  const char* help;
};
constexpr SettingOption kSettingOptions[] = {
    {"norm", "--norm,--norms", "LIST",
     "Norms, separated by commas (default: all that the task\n"
     "compares, see 'planish list TASK')"},
    {"cell", "--cell,--cells", "LIST",
     "Recurrent cells, separated by commas (default: the task's)"},
    {"batch_size", "--batch-size", "LIST",
     "Batch sizes, separated by commas (default: the preset's)"},
    {"unit", "--unit", "character|byte",
     "char-lm: what the text is read in, and bits are counted of"},
    {"text", "--text", "COLUMN", "sentences: column of the texts"},
    {"label", "--label", "COLUMN", "sentences: column of the labels"},
    {"direction", "--direction", "FROM-TO", "mt: source and target language, such as en-de"},
};

// Returns "--norm" for "--norm,--norms".
std::string FirstName(const SettingOption& option) {
  const std::string_view names = option.names;
  return std::string(names.substr(0, names.find(',')));
}

// Throws UsageError for an option of a setting that the task lacks.
void CheckOption(const std::string& command, const Task& task, const SettingOption& option) {
  const auto has = [&](const Task& some) {
    return std::ranges::find(some.settings, option.setting, &SettingSpec::name) !=
           some.settings.end();
  };
  if (has(task)) return;
  std::vector<std::string> others;
  for (const auto& other : Tasks()) {
    if (has(*other)) others.push_back(other->name);
  }
  // A cell's name includes its norm.
  const std::string hint = task.report.compare == "cell" && !std::strcmp(option.setting, "norm")
                               ? fmt::format("{} compares cells (--cell)", task.name)
                           : others.empty()
                               ? fmt::format("{} has no setting {}", task.name, option.setting)
                               : fmt::format("{} has no setting {}; tasks with it: {}", task.name,
                                             option.setting, fmt::join(others, ", "));
  throw UsageError(
      fmt::format("[{}] {} must go with another task: {}", command, FirstName(option), hint));
}

// Returns the settings of the preset with the first of the values of `request`.
Settings FirstSettings(const Task& task, const SweepRequest& request) {
  Settings settings(task.settings);
  settings.Apply(FindPreset(task, request.preset));
  for (const auto& [name, values] : request.values) settings.Set(name, values.front());
  return settings;
}

// Adds settings that follow from the data (SettingsOfData) and that `request` does not have.
void AddSettingsOfData(const Task& task, const RunFlags& flags, SweepRequest* request) {
  const auto* const of_data = dynamic_cast<const SettingsOfData*>(&task);
  if (of_data == nullptr) return;
  const char* const variable = std::getenv("PLANISH_DATA");
  const std::string path = !flags.data.empty() ? flags.data : variable != nullptr ? variable : "";
  if (path.empty()) return;
  for (const auto& [name, value] : of_data->SettingsFor(FirstSettings(task, *request), path)) {
    const bool is_given = std::ranges::any_of(request->values, [&](const auto& setting) {
      return PresentSetting(setting.first) == name;
    });
    if (!is_given) request->values.emplace_back(name, std::vector{value});
  }
}

// Data of a sweep. Successive runs share it if their data settings agree.
class SharedData {
 public:
  SharedData(const Task& task, std::optional<fs::path> folder, const std::vector<QueuedRun>& runs)
      : task_(task), folder_(std::move(folder)), runs_(runs) {}

  // Returns the data of a run. Loading other data invalidates the earlier result. Throws
  // UsageError if the data does not fit any of the runs that share it, before the first of them
  // starts.
  const Dataset& For(const RunPlan& plan, Progress& progress) {
    if (data_ && Key(plan) == key_) return *data_;
    data_.reset();
    progress.Phase("loading data");
    data_ = LoadData(task_, task_.LoadSettings(plan.settings, plan.seed), folder_);
    key_ = Key(plan);
    about_[key_] = data_->about;
    progress.Note("data: " + data_->about.description);
    for (const QueuedRun& run : runs_) {
      if (Key(run.plan) == key_) task_.Check(run.plan.settings, *data_);
    }
    return *data_;
  }

  // Loads the data of every run, one after the other, for its description and errors.
  void LookAtAll(Progress& progress) {
    for (const QueuedRun& run : runs_) {
      if (!about_.contains(Key(run.plan))) For(run.plan, progress);
    }
    data_.reset();
  }

  // Returns a dataset with only the description of data that has been loaded.
  Dataset About(const RunPlan& plan) const {
    Dataset data;
    data.about = about_.at(Key(plan));
    return data;
  }

 private:
  std::string Key(const RunPlan& plan) const {
    const Settings settings = task_.LoadSettings(plan.settings, plan.seed);
    std::string key;
    for (const std::string& name : task_.data_settings) {
      key += Spelled(settings.values().at(name)) + "|";
    }
    return key;
  }

  const Task& task_;
  std::optional<fs::path> folder_;
  const std::vector<QueuedRun>& runs_;
  std::string key_;
  std::map<std::string, RunConfig::Data> about_;
  std::unique_ptr<Dataset> data_;
};

// Returns the options that the process of a run gets.
std::vector<std::string> ChildArguments(const RunFlags& flags, int jobs) {
  const int threads = flags.threads > 0 ? flags.threads : CoresForEach(jobs);
  std::vector<std::string> arguments = {"--threads", std::to_string(threads),
                                        "--checkpoint-seconds",
                                        fmt::format("{}", flags.checkpoint_seconds)};
  if (!flags.data.empty()) arguments.insert(arguments.end(), {"--data", flags.data});
  if (flags.device != "cpu") arguments.insert(arguments.end(), {"--device", flags.device});
  return arguments;
}

std::string MetricText(const Run& run, const std::string& name,
                       const std::map<std::string, double>& values) {
  const std::vector<MetricSpec>& metrics = run.config.metrics;
  const auto metric = std::ranges::find(metrics, name, &MetricSpec::name);
  const auto value = values.find(name);
  if (value == values.end() || metric == metrics.end()) {
    throw CannotRead(run.folder / "result.json", name + " is missing");
  }
  return fmt::format("{} {}", metric->label, FormatValue(*metric, value->second));
}

}  // namespace

void AddRunOptions(CLI::App& command, RunFlags& flags) {
  const std::string name = command.get_name();
  command.add_option("TASK", flags.task, "Task of 'planish list'")->type_name("")->required();
  for (const SettingOption& option : kSettingOptions) {
    command.add_option(option.names, flags.options[option.setting], option.help)
        ->type_name(option.type);
  }
  command
      .add_option("--preset", flags.preset,
                  "A preset of 'planish list TASK' (default: the first), such as\n"
                  "paper: as printed; small: seconds a run; smoke: a test that it runs")
      ->type_name("NAME")
      ->check(NotEmpty(name, "--preset"));
  command
      .add_option("--set", flags.sets, "Change a setting of 'planish list TASK'; can be repeated")
      ->type_name("KEY=VALUE[,VALUE...]")
      ->expected(1)
      ->take_all();
  AddDataOption(command, flags.data,
                "Folder or text file of the data\n"
                "(default: $PLANISH_DATA, else synthetic data)");
  command.add_option("--out", flags.out, "Folder for the runs (default: runs)")
      ->type_name("FOLDER");
}

void AddTrainingOptions(CLI::App& command, RunFlags& flags, const std::string& json_help) {
  const std::string name = command.get_name();
  AddJobsOption(command, flags.jobs, "Runs at once, each in a process of its own (default: 1)");
  command
      .add_option("--threads", flags.threads,
                  "Threads of each run (default: the cores divided by --jobs)")
      ->type_name("N")
      ->check(WholeNumber(name, "--threads", 1, 1024));
  command
      .add_option("--device", flags.device, "Where to train: cpu (default), cuda or cuda:N, a GPU")
      ->type_name("NAME");
  command
      .add_option("--checkpoint-seconds", flags.checkpoint_seconds,
                  "Maximum training time that a crash loses (default: 60)")
      ->type_name("SECONDS")
      ->check(Number(name, "--checkpoint-seconds", "a number of seconds",
                     [](double seconds) { return seconds >= 0; }));
  command.add_flag("--json", flags.json, json_help);
  command.add_flag("--quiet", flags.quiet, "Print only warnings and errors, no progress");
}

SweepRequest MakeRequest(const std::string& command, const Task& task, const RunFlags& flags) {
  if (flags.out.empty()) {
    throw UsageError(fmt::format("[{}] --out must be a folder, got an empty name", command));
  }
  SweepRequest request;
  request.preset = flags.preset.empty() ? task.presets.front().name : flags.preset;
  request.out = flags.out;
  const auto add = [&](const std::string& name, const std::string& flag, const std::string& text) {
    request.values.emplace_back(name, SplitList(flag, text, command));
  };
  for (const SettingOption& option : kSettingOptions) {
    const std::optional<std::string>& text = flags.options.at(option.setting);
    if (!text) continue;
    CheckOption(command, task, option);
    add(option.setting, FirstName(option), *text);
  }
  for (const std::string& set : flags.sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError(fmt::format("[{}] --set must be key=value, got \"{}\"", command, set));
    }
    add(set.substr(0, equals), "--set " + set.substr(0, equals), set.substr(equals + 1));
  }
  AddSettingsOfData(task, flags, &request);
  AddComparedValues(task, request);
  return request;
}

RunQueue QueueOf(const Task& task, std::vector<QueuedRun> runs) {
  RunQueue queue;
  queue.groups = {task.name};
  queue.runs = std::move(runs);
  queue.estimates = Estimates({std::nullopt});
  return queue;
}

std::string FinalMetricText(const Run& run, const std::string& metric) {
  const RunResult& result = *run.result;
  if (!result.best || result.final_values.contains(metric)) {
    return MetricText(run, metric, result.final_values);
  }
  return BestMetricText(run, metric);
}

std::string BestMetricText(const Run& run, const std::string& metric) {
  return MetricText(run, metric, run.result->best->values);
}

TrainedRuns TrainRuns(const Task& task, RunQueue& queue, const RunFlags& flags,
                      Processes& processes, const std::function<std::string(const Run&)>& summary,
                      const std::function<void(const Run&)>& on_run) {
  const int jobs = std::min(flags.jobs.value_or(1), static_cast<int>(queue.runs.size()));
  const c10::Device device = ParseDevice(flags.device);
  const std::optional<fs::path> folder = DataFolder(flags.data);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  const InterruptGuard interrupts;
  StopWithStarter();
  const std::map<std::string, std::string> stamps = MachineStamps();

  TrainedRuns trained;
  trained.runs.resize(queue.runs.size());
  ProgressOutput output = ProgressOutput::Stderr();
  if (!processes.is_first()) output.write = [](std::string_view) {};
  Progress progress(static_cast<int>(queue.runs.size()), StderrProgressMode(flags.quiet), output);
  SharedData data(task, folder, queue.runs);

  RunnerOptions options;
  options.jobs = jobs;
  options.summary = [&](const Run& run) {
    return run.result->status == "diverged" ? "diverged: " + run.result->message : summary(run);
  };
  size_t next = 0;  // first run that on_run has not got
  options.on_result = [&](size_t index, const Run& run, ResultOf by) {
    trained.earlier += by == ResultOf::kEarlierCommand;
    trained.diverged += run.result->status == "diverged";
    trained.runs[index] = run;
    for (; next < trained.runs.size() && trained.runs[next]; ++next) on_run(*trained.runs[next]);
  };
  TrainOptions train;
  if (jobs > 1) {
    data.LookAtAll(progress);
    options.arguments = ChildArguments(flags, jobs);
    options.has_result = [&](size_t index) {
      const RunPlan& plan = queue.runs[index].plan;
      if (!fs::exists(plan.folder / "result.json")) return false;
      try {
        return !IsToTrain(plan, MakeConfig(task, data.About(plan), plan, stamps));
      } catch (const RunError&) {
        return false;  // its process reports it
      }
    };
    for (size_t i = 0; i < queue.runs.size(); ++i) queue.runs[i].done = options.has_result(i);
  } else {
    data.For(queue.runs.front().plan, progress);
    for (QueuedRun& run : queue.runs) queue.FindResult(run);
    train.device = device;
    train.processes = &processes;
    train.checkpoint_seconds = flags.checkpoint_seconds;
    train.stop = [] { return Interrupted() != 0; };
    train.stop_evaluation = [&] {
      progress.Tick();
      return Interrupted() != 0;
    };
    if (folder) train.data = fs::absolute(*folder).lexically_normal().string();
    options.is_one_of_several = processes.size() > 1;
    options.train_here = [&](const QueuedRun& run, Progress& shown) {
      const Dataset& dataset = data.For(run.plan, shown);
      if (Interrupted() != 0) return Outcome::kInterrupted;
      const Outcome outcome = Train(task, dataset, run.plan, stamps, train, shown);
      if (outcome == Outcome::kInterrupted && Interrupted() == 0) {
        throw RunError(
            "another process was stopped: the run is saved. Run the same command again to "
            "continue");
      }
      return outcome;
    };
  }
  trained.status = TrainQueue(queue, options, progress);
  if (trained.status > 128) return trained;
  for (; next < trained.runs.size(); ++next) {
    if (trained.runs[next]) on_run(*trained.runs[next]);
  }
  if (trained.earlier > 0) {
    progress.Note(
        fmt::format("{} of {} runs had been done before", trained.earlier, trained.runs.size()));
  }
  if (trained.diverged > 0) {
    progress.Warn(
        fmt::format("warning: {} of {} runs diverged", trained.diverged, trained.runs.size()));
  }
  return trained;
}

}  // namespace planish::lab
