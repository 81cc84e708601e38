#ifndef PLANISH_LAB_DATA_SOURCE_H_
#define PLANISH_LAB_DATA_SOURCE_H_

#include <filesystem>
#include <optional>
#include <string>

#include "lab/data/digits.h"
#include "lab/data/images.h"

namespace planish::lab {

/// Throws DataError unless the file or folder `path` exists and its name is UTF-8 (as the run's
/// config.json stores it). Every command checks its data with it before it reads or writes anything
/// else. `origin` names the source of the path if that is not the command line.
void CheckDataPath(const std::filesystem::path& path, const std::string& origin = "");

/// Returns the value of a flag that names data, or nullopt if it is empty (not given). Throws like
/// CheckDataPath.
std::optional<std::filesystem::path> GivenData(const std::string& flag);

/// Returns GivenData(flag), else the environment variable PLANISH_DATA, or nullopt if that is unset
/// or empty. Throws like CheckDataPath.
std::optional<std::filesystem::path> DataFolder(const std::string& flag);

/// Returns images of the ten digits: LoadMnist(*folder) if there is a folder, else
/// DrawDigits(drawing). Throws like these.
ImageSet OpenDigits(const std::optional<std::filesystem::path>& folder, const Drawing& drawing);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_SOURCE_H_
