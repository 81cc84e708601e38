#ifndef PLANISH_LAB_ENGINE_SETTINGS_OF_DATA_H_
#define PLANISH_LAB_ENGINE_SETTINGS_OF_DATA_H_

#include <filesystem>
#include <map>
#include <string>

#include "lab/engine/settings.h"

namespace planish::lab {

/// Interface of tasks some of whose settings follow from the data, unless the user gives them.
class SettingsOfData {
 public:
  virtual ~SettingsOfData() = default;

  /// Returns setting -> value for the data at `path`. `settings` are those of the preset and of the
  /// user. Reads only the names of files, and returns nothing for a path that does not exist.
  virtual std::map<std::string, std::string> SettingsFor(
      const Settings& settings, const std::filesystem::path& path) const = 0;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_SETTINGS_OF_DATA_H_
