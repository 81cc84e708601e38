#include "lab/engine/trained.h"

#include <fmt/format.h>

#include "lab/engine/checkpoint.h"
#include "lab/engine/load_data.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

Trained OpenTrained(const Task& task, const Run& run, const std::optional<fs::path>& folder) {
  if (!run.result) {
    throw RunError(fmt::format(
        "[OpenTrained] {} must be a run that has ended but is unfinished: planish train goes on "
        "with it",
        run.folder.string()));
  }
  const fs::path file = CheckpointFile(run.folder);
  if (!fs::exists(file)) {
    throw RunError(
        fmt::format("[OpenTrained] {} must have a checkpoint but has none", run.folder.string()));
  }
  Settings settings(task.settings);
  for (const auto& [name, value] : run.config.settings.items()) settings.Set(name, Spelled(value));
  std::optional<fs::path> source = folder;
  if (!source) {
    if (const std::string read = CheckpointData(file); !read.empty()) source = read;
  }
  Trained trained;
  trained.data = LoadData(task, settings, source);
  if (trained.data->about.sha256 != run.config.data.sha256) {
    throw RunError(fmt::format(
        "[OpenTrained] the data must be what {} was trained on ({}) but has another checksum",
        run.folder.string(), run.config.data.description));
  }
  trained.experiment = task.Make(settings, *trained.data);
  LoadBestWeights(file, trained.experiment->model());
  trained.experiment->model().eval();
  return trained;
}

}  // namespace planish::lab
