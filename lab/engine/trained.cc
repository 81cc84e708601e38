#include "lab/engine/trained.h"

#include <fmt/format.h>

#include "lab/data/source.h"
#include "lab/engine/checkpoint.h"
#include "lab/engine/load_data.h"
#include "lab/error.h"
#include "lab/run/posix_file.h"

namespace planish::lab {

namespace fs = std::filesystem;

Settings SettingsOf(const Task& task, const Run& run) {
  Settings settings(task.settings);
  try {
    for (const auto& [name, value] : run.config.settings.items()) {
      settings.Set(name, Spelled(value));
    }
  } catch (const UsageError& e) {
    throw CannotRead(fs::is_directory(run.folder) ? run.folder / "config.json" : run.folder,
                     e.what());
  }
  return settings;
}

Trained OpenTrained(const Task& task, const Run& run, const std::optional<fs::path>& folder) {
  if (!run.result) {
    throw RunError(fmt::format(
        "{} is an unfinished run; the planish train command that started it continues it",
        run.folder.string()));
  }
  const fs::path file = CheckpointFile(run.folder);
  if (!fs::exists(file)) {
    throw RunError(fmt::format("{} has no checkpoint", run.folder.string()));
  }
  const Settings settings = SettingsOf(task, run);
  std::optional<fs::path> source = folder;
  if (!source) {
    if (const std::string read = CheckpointData(file); !read.empty()) source = GivenData(read);
  }
  Trained trained;
  trained.data = LoadData(task, task.LoadSettings(settings, run.config.seed), source);
  if (trained.data->about.sha256 != run.config.data.sha256) {
    throw RunError(
        fmt::format("this is not the data that {} was trained on ({}): its checksum differs",
                    run.folder.string(), run.config.data.description));
  }
  trained.experiment = task.Make(settings, *trained.data);
  LoadBestWeights(file, trained.experiment->model());
  trained.experiment->model().eval();
  return trained;
}

std::unique_ptr<Experiment> OpenInitial(const Task& task, const Run& run, const Dataset& data) {
  std::unique_ptr<Experiment> experiment =
      task.MakeSeeded(SettingsOf(task, run), data, run.config.seed);
  experiment->model().eval();
  return experiment;
}

}  // namespace planish::lab
