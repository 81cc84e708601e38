#ifndef PLANISH_LAB_ENGINE_MODEL_FILE_H_
#define PLANISH_LAB_ENGINE_MODEL_FILE_H_

#include <c10/core/ScalarType.h>

#include <filesystem>

#include "lab/engine/task.h"
#include "lab/engine/trained.h"
#include "lab/run/results.h"
#include "lab/run/safetensors.h"

// Exported models: one safetensors file with the weights of a finished run that validation chose,
// and what they need of the data (docs/files.md).
namespace planish::lab {

/// Writes the trained model of `run`, a run of `task`, to `file`. Weights and buffers in floating
/// point are rounded to `type`. Leaves out the folders of absolute paths in the run's texts.
/// Throws UsageError if the task's models are of no use without the data, or if a weight is out of
/// the range of `type`; RunError if the file cannot be written; and like OutputTarget.
void ExportModel(const std::filesystem::path& file, const Task& task, const Run& run,
                 const Trained& trained, at::ScalarType type);

/// Exported model in memory.
struct ExportedModel {
  Run run;  ///< has the file as its folder, and no evaluations
  PackedData data;
  SafetensorsFile weights;
};

/// Returns true if `path` is a safetensors file that can be read, with a model of ExportModel.
bool IsExportedModel(const std::filesystem::path& path);

/// Reads a file of ExportModel. Throws RunError naming the file and its fault.
ExportedModel ReadModel(const std::filesystem::path& file);

/// Rebuilds the experiment of a model, whose task is `task`, without cases. Throws RunError naming
/// the file if its settings, data or weights do not fit, and DataError like MakeStored.
Trained OpenModel(const Task& task, const ExportedModel& model);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_MODEL_FILE_H_
