#include "lab/data/source.h"

#include <fmt/format.h>

#include <cstdlib>
#include <system_error>

#include "lab/base/escape.h"
#include "lab/data/idx.h"
#include "lab/data/lines.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

void CheckDataPath(const fs::path& path, const std::string& origin) {
  const std::string name = Escaped(path.string()) + origin;
  if (FindInvalidUtf8(path.string())) {
    throw DataError(fmt::format("the path of the data must be UTF-8: {}", name));
  }
  std::error_code error;
  if (fs::exists(path, error)) return;
  if (error) throw DataError(fmt::format("cannot read {}: {}", name, error.message()));
  throw DataError(fmt::format("no such {}: {}", path.has_extension() ? "file" : "folder", name));
}

std::optional<fs::path> GivenData(const std::string& flag) {
  if (flag.empty()) return std::nullopt;
  CheckDataPath(flag);
  return flag;
}

std::optional<fs::path> DataFolder(const std::string& flag) {
  if (!flag.empty()) return GivenData(flag);
  const char* variable = std::getenv("PLANISH_DATA");
  if (!variable || !*variable) return std::nullopt;
  CheckDataPath(variable, " (from PLANISH_DATA)");
  return variable;
}

ImageSet OpenDigits(const std::optional<fs::path>& folder, const Drawing& drawing) {
  return folder ? LoadMnist(*folder) : DrawDigits(drawing);
}

}  // namespace planish::lab
