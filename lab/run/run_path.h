#ifndef PLANISH_LAB_RUN_RUN_PATH_H_
#define PLANISH_LAB_RUN_RUN_PATH_H_

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "lab/base/escape.h"
#include "lab/error.h"

namespace planish::lab {

/// Throws DataError if nothing exists at the path of runs, which the user gave.
inline void CheckRunPath(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::symlink_status(path, error).type() ==
      std::filesystem::file_type::not_found) {
    throw DataError(fmt::format("no such file or folder: {}", Escaped(path.string())));
  }
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_RUN_PATH_H_
