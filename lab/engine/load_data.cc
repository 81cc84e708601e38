#include "lab/engine/load_data.h"

#include <fmt/format.h>

#include <exception>
#include <string>
#include <string_view>

#include "lab/base/escape.h"
#include "lab/engine/memory.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

// Throws if the absolute path is not UTF-8: the files of a run, which name it, are JSON.
void CheckUtf8(const fs::path& path) {
  const std::string text = fs::absolute(path).string();
  for (std::string_view rest = text; !rest.empty();) {
    const size_t length = Utf8SequenceLength(rest);
    if (length == 0) {
      throw DataError(fmt::format("the data path {} is not UTF-8: rename it", Escaped(text)));
    }
    rest.remove_prefix(length);
  }
}

}  // namespace

std::unique_ptr<Dataset> LoadData(const Task& task, const Settings& settings,
                                  const std::optional<fs::path>& path) {
  if (path) CheckUtf8(*path);
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
