#include "lab/commands/trained_run.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "lab/base/escape.h"
#include "lab/commands/options.h"
#include "lab/data/source.h"
#include "lab/engine/model_file.h"
#include "lab/error.h"
#include "lab/run/posix_file.h"
#include "lab/run/run_path.h"
#include "lab/tasks/tasks.h"

namespace planish::lab {

void AddRunArgument(CLI::App& command, TrainedRunFlags& flags, const std::string& help) {
  command.add_option("RUN", flags.run, help)
      ->type_name("")
      ->required()
      ->check(NotEmpty(command.get_name(), "RUN"));
}

void AddTrainedRunOptions(CLI::App& command, TrainedRunFlags& flags) {
  AddDataOption(command, flags.data,
                "Data that the run was trained on (default: its original place)");
  AddThreadsOption(command, flags.threads);
}

TrainedRun::TrainedRun(const std::string& command, const TrainedRunFlags& flags,
                       const SettingChanges& changes)
    : command_(command) {
  const auto data = GivenData(flags.data);
  std::optional<ExportedModel> model;
  std::error_code error;
  if (std::filesystem::is_regular_file(flags.run, error)) {
    if (data) {
      throw UsageError(fmt::format("[{}] --data must go with a run: {} is an exported model",
                                   command, flags.run.string()));
    }
    model = ReadModel(flags.run);
  }
  if (!model) CheckRunPath(flags.run);
  run_ = model ? model->run : ReadRun(flags.run);
  for (const auto& [name, value] : changes) {
    if (!run_.config.settings.contains(name)) {
      throw UsageError(fmt::format("[{}] {} must be of a task with the setting {}, got task {}",
                                   command, flags.run.string(), name, run_.config.task));
    }
    run_.config.settings[name] = value;
  }
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  if (model && std::ranges::none_of(
                   Tasks(), [&](const auto& known) { return known->name == run_.config.task; })) {
    throw CannotRead(flags.run,
                     fmt::format("config: there is no task {}", Quoted(run_.config.task)));
  }
  const Task& task = FindTask(run_.config.task);
  if (model) {
    model->run = run_;
    trained_ = OpenModel(task, *model);
  } else {
    trained_ = OpenTrained(task, run_, data);
  }
}

void TrainedRun::Refuse(const std::string& task) const {
  throw UsageError(fmt::format("[{}] {} must be of a task that {}, got task {}", command_,
                               run_.folder.string(), task, run_.config.task));
}

void TrainedRun::Export(const std::filesystem::path& file, at::ScalarType type) const {
  if (!run_.result) {
    throw UsageError(
        fmt::format("[export] RUN must be the folder of a run, got {}", run_.folder.string()));
  }
  ExportModel(file, FindTask(run_.config.task), run_, trained_, type);
}

}  // namespace planish::lab
