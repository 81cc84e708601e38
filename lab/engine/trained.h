#ifndef PLANISH_LAB_ENGINE_TRAINED_H_
#define PLANISH_LAB_ENGINE_TRAINED_H_

#include <filesystem>
#include <memory>
#include <optional>

#include "lab/engine/task.h"
#include "lab/run/results.h"

namespace planish::lab {

/// A run's experiment with the weights that validation chose, in evaluation mode.
struct Trained {
  std::unique_ptr<Dataset> data;
  std::unique_ptr<Experiment> experiment;
};

/// Makes the experiment of `run`, which is one of `task`, anew and gives it its trained weights.
/// The data is read from `folder`, else from where it was read for training. Throws RunError when
/// the run has no checkpoint or the data is not what it was trained on, and what Task::Load throws.
Trained OpenTrained(const Task& task, const Run& run,
                    const std::optional<std::filesystem::path>& folder);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_TRAINED_H_
