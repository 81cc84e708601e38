#ifndef PLANISH_LAB_DATA_SOURCE_H_
#define PLANISH_LAB_DATA_SOURCE_H_

#include <filesystem>
#include <optional>
#include <string>

#include "lab/data/digits.h"
#include "lab/data/images.h"

namespace planish::lab {

/// Throws DataError unless there is a file or folder `path` whose name is UTF-8 (as the run's
/// config.json stores it). Every command checks its data with it before it reads or writes
/// anything else. `origin` says who named the path where that is not the command line.
void CheckDataPath(const std::filesystem::path& path, const std::string& origin = "");

/// Returns the value of a flag that names data, nothing if it is empty (not given). Throws what
/// CheckDataPath throws.
std::optional<std::filesystem::path> GivenData(const std::string& flag);

/// Returns GivenData(flag), else the environment variable PLANISH_DATA, nothing if that is not set
/// or empty. Throws what CheckDataPath throws.
std::optional<std::filesystem::path> DataFolder(const std::string& flag);

/// Returns images of the ten digits: LoadMnist(*folder) when there is a folder, else
/// DrawDigits(drawing). Throws what these throw.
ImageSet OpenDigits(const std::optional<std::filesystem::path>& folder, const Drawing& drawing);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_SOURCE_H_
