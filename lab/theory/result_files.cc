#include "lab/theory/result_files.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "lab/error.h"
#include "lab/run/archive.h"
#include "lab/run/json.h"
#include "lab/run/posix_file.h"
#include "lab/run/results.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;

bool IsJson(const fs::path& path) { return path.extension() == ".json"; }

// JSON files below a root, and whether there are runs.
struct Files {
  std::vector<fs::path> json;
  bool has_runs = false;
};

Files FilesOf(const fs::path& root) try {
  Files files;
  if (!fs::is_directory(root)) {
    if (IsJson(root)) files.json.push_back(root);
    files.has_runs = IsArchive(root);
    return files;
  }
  files.has_runs = fs::exists(root / "config.json");
  VisitEntries(root, [&](const fs::path& path) {
    files.has_runs |= path.filename() == "config.json" || IsArchive(path);
    if (IsJson(path) && fs::is_regular_file(path)) files.json.push_back(path);
  });
  return files;
} catch (const fs::filesystem_error& e) {
  throw CannotRead(e.path1().empty() ? root : e.path1(), e.code().message());
}

// Results of runs, and other JSON, are no results of analyses.
bool IsOfAnotherKind(const fs::path& path, const std::string& text) {
  return path.filename() == "config.json" || path.filename() == "result.json" ||
         text.find("\"analysis\"") == std::string::npos;
}

}  // namespace

FoundTheory FindTheoryResults(const std::vector<fs::path>& roots) {
  FoundTheory found;
  std::map<fs::path, TheoryResult> results;
  for (const fs::path& root : roots) {
    const Files files = FilesOf(root);
    bool any = false;
    for (const fs::path& path : files.json) {
      any |= path == root;
      try {
        const std::string text = ReadRegularFile(path, kMaxJsonBytes);
        if (path != root && IsOfAnotherKind(path, text)) continue;
        any = true;
        results.emplace(fs::canonical(path), TheoryFromJson(ParseJson(text)));
      } catch (const RunError& e) {
        found.faults.push_back(e.what());
      } catch (const std::exception& e) {
        found.faults.push_back(
            fmt::format("{} is no result of planish analyze: {}", path.string(), JsonReason(e)));
      }
    }
    if (any && !files.has_runs) found.roots.push_back(root);
  }
  std::set<std::string> seen;
  for (auto& [path, result] : results) {
    if (seen.insert(ToJson(result).dump()).second) found.results.push_back(std::move(result));
  }
  return found;
}

}  // namespace planish::lab
