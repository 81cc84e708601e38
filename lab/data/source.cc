#include "lab/data/source.h"

#include <cstdlib>

#include "lab/data/idx.h"

namespace planish::lab {

std::optional<std::filesystem::path> DataFolder(const std::string& flag) {
  if (!flag.empty()) return flag;
  const char* variable = std::getenv("PLANISH_DATA");
  if (variable && *variable) return variable;
  return std::nullopt;
}

ImageSet OpenDigits(const std::optional<std::filesystem::path>& folder, const Drawing& drawing) {
  return folder ? LoadMnist(*folder) : DrawDigits(drawing);
}

}  // namespace planish::lab
