#ifndef PLANISH_LAB_ENGINE_LOAD_DATA_H_
#define PLANISH_LAB_ENGINE_LOAD_DATA_H_

#include <filesystem>
#include <memory>
#include <optional>

#include "lab/engine/settings.h"
#include "lab/engine/task.h"

namespace planish::lab {

/// Returns task.Load(settings, path), with the texts of `about` escaped for JSON and terminals. For
/// the data of a run, `settings` are Task::LoadSettings of its settings and seed.
/// Throws DataError naming `path` if its absolute path is not UTF-8, before reading anything.
/// Throws it like FileContent if `path` is no regular file, or an archive that the task does not
/// read (ArchiveReader). Throws it also if the data does not fit into memory, and whatever
/// Task::Load throws.
std::unique_ptr<Dataset> LoadData(const Task& task, const Settings& settings,
                                  const std::optional<std::filesystem::path>& path);

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_LOAD_DATA_H_
