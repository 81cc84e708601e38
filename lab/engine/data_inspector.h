#ifndef PLANISH_LAB_ENGINE_DATA_INSPECTOR_H_
#define PLANISH_LAB_ENGINE_DATA_INSPECTOR_H_

#include <filesystem>
#include <optional>

#include "lab/engine/settings.h"
#include "lab/run/results.h"

namespace planish::lab {

/// Interface of tasks whose Load does more than read the data, such as training a vocabulary.
class DataInspector {
 public:
  virtual ~DataInspector() = default;

  /// Returns `about` of the data that Load would read, before any work beyond reading. Throws
  /// like Load.
  virtual RunConfig::Data Inspect(const Settings& settings,
                                  const std::optional<std::filesystem::path>& path) const = 0;
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_ENGINE_DATA_INSPECTOR_H_
