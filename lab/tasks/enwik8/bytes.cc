#include "lab/tasks/enwik8/bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/sha256.h"
#include "lab/error.h"
#include "lab/papers/paper_data.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

bool IsEnwik8(const fs::path& file) { return file.filename().string().starts_with("enwik8"); }

// Returns true for file names of the set or a part of it: enwik8, enwik8.first1000000 and their
// .txt and .gz, but not enwik8.zip or enwik8.md5. Other names must be given with --data.
bool IsSet(const fs::path& file) {
  if (!IsEnwik8(file)) return false;
  fs::path name = file.filename();
  for (const char* ending : {".gz", ".txt"}) {
    if (name.extension() == ending) name = name.stem();
  }
  return name.extension().empty() || name.extension().string().starts_with(".first");
}

// Returns the file of `path`, a file or a folder.
fs::path Locate(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  std::vector<fs::path> others;
  for (const fs::path& folder : {path, path / "enwik8", path / "enwik8_prefix"}) {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (!IsEnwik8(entry.path()) || entry.is_directory(error)) continue;
      (IsSet(entry.path()) ? found : others).push_back(entry.path());
    }
    for (const char* name : {"enwik8", "enwik8.gz"}) {
      if (std::ranges::find(found, folder / name) != found.end()) return folder / name;
    }
    if (!found.empty()) return *std::ranges::min_element(found);
  }
  if (others.empty()) {
    throw DataError(fmt::format(
        "{} has no file enwik8 or enwik8.gz, itself or in a folder enwik8 or enwik8_prefix",
        Escaped(path.string())));
  }
  const fs::path other = *std::ranges::min_element(others);
  const auto packed = PackedByName(other);
  throw DataError(fmt::format("{} has no file enwik8 or enwik8.gz, only {}: {}",
                              Escaped(path.string()), Escaped(other.filename().string()),
                              packed ? fmt::format("it is {}, unpack it first", *packed)
                                     : "if it is the right one, name it with --data"));
}

}  // namespace

Text ReadBytes(const fs::path& path, int64_t max_bytes) {
  const fs::path file = Locate(path);
  Text text;
  text.characters = FileContent(file).Rest(max_bytes);
  if (text.characters.empty()) FailToRead(file, "it is empty");
  const int64_t size = std::ssize(text.characters);
  text.source = "files";
  text.description = fmt::format("{} bytes read from {}", FormatInteger(size), file.string());
  Sha256 sha;
  sha.Update({reinterpret_cast<const uint8_t*>(text.characters.data()), text.characters.size()});
  text.sha256 = sha.Hex();
  text.name = IsPaperData("enwik8", text.sha256) ? "enwik8" : file.filename().string();
  return text;
}

Text OpenBytes(const std::optional<fs::path>& path, int64_t max_bytes) {
  return path ? ReadBytes(*path, max_bytes) : MakeText(std::min(max_bytes, kMaxSyntheticText));
}

}  // namespace planish::lab
