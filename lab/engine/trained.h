#ifndef PLANISH_LAB_ENGINE_TRAINED_H_
#define PLANISH_LAB_ENGINE_TRAINED_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "lab/engine/task.h"
#include "lab/run/results.h"

namespace planish::lab {

/// Experiment of a run with the weights that validation chose, in evaluation mode.
struct Trained {
  std::unique_ptr<Dataset> data;
  std::unique_ptr<Experiment> experiment;
};

/// Returns the settings of `run`, a run of `task`. Throws RunError if the task does not accept
/// them.
Settings SettingsOf(const Task& task, const Run& run);

/// Returns task.Make of settings that were read from `file`, for a model with `elements` stored
/// weights. Throws DataError naming the file, and if possible the setting, if such a model has far
/// more weights; then little memory was taken. `cases` is the number of cases in `data`.
std::unique_ptr<Experiment> MakeStored(const std::filesystem::path& file, const Task& task,
                                       const Settings& settings, const Dataset& data, int64_t cases,
                                       int64_t elements);

/// Rebuilds the experiment of `run`, a run of `task`, with its trained weights. Reads the data from
/// `folder`, or by default from where training read it.
/// Throws RunError if the run has no checkpoint or the data is not its training data, and whatever
/// Task::Load and MakeStored throw.
Trained OpenTrained(const Task& task, const Run& run,
                    const std::optional<std::filesystem::path>& folder);

/// Returns the experiment of `run` as it was before its first update, in evaluation mode. `data` is
/// that of OpenTrained. Seeds the default generator.
std::unique_ptr<Experiment> OpenInitial(const Task& task, const Run& run, const Dataset& data);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_TRAINED_H_
