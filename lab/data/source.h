#ifndef PLANISH_LAB_DATA_SOURCE_H_
#define PLANISH_LAB_DATA_SOURCE_H_

#include <filesystem>
#include <optional>
#include <string>

#include "lab/data/digits.h"
#include "lab/data/images.h"

namespace planish::lab {

/// Where the user keeps data: `flag` (the value of --data) unless empty, else the environment
/// variable PLANISH_DATA unless empty, else nothing.
std::optional<std::filesystem::path> DataFolder(const std::string& flag);

/// Images of the ten digits: LoadMnist(*folder) when there is a folder, else DrawDigits(drawing).
/// Throws what these throw.
ImageSet OpenDigits(const std::optional<std::filesystem::path>& folder, const Drawing& drawing);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_SOURCE_H_
