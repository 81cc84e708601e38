#include "lab/engine/load_data.h"

#include <fmt/format.h>

#include <exception>
#include <string>
#include <system_error>

#include "lab/base/escape.h"
#include "lab/data/file_content.h"
#include "lab/data/lines.h"
#include "lab/engine/archive_reader.h"
#include "lab/engine/memory.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

std::unique_ptr<Dataset> LoadData(const Task& task, const Settings& settings,
                                  const std::optional<fs::path>& path) {
  // JSON files of the run store the absolute path.
  if (const std::string name = path ? fs::absolute(*path).string() : ""; FindInvalidUtf8(name)) {
    throw DataError(fmt::format("the data path {} is not UTF-8: rename it", Escaped(name)));
  }
  // Refuses archives and pipes for all tasks, also those that read a folder.
  const auto* const archives = dynamic_cast<const ArchiveReader*>(&task);
  const bool is_own = path && archives != nullptr && archives->ReadsArchive(*path);
  std::error_code error;
  if (path && !is_own && fs::exists(*path, error) && !fs::is_directory(*path, error)) {
    FileContent check(*path);
  }
  try {
    std::unique_ptr<Dataset> data = task.Load(settings, path);
    data->about.name = Escaped(data->about.name);
    data->about.description = Escaped(data->about.description);
    return data;
  } catch (const std::exception& e) {
    if (!path || !IsOutOfMemory(e)) throw;
    throw DataError(fmt::format("cannot read {}: not enough memory", Escaped(path->string())));
  }
}

}  // namespace planish::lab
