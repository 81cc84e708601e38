#include "lab/data/bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/sha256.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kWholeSet = 100'000'000;

[[noreturn]] void Fail(const fs::path& file, const std::string& must, const std::string& has) {
  throw DataError(fmt::format("[ReadBytes] {} must {} but has {}", file.string(), must, has));
}

bool IsEnwik8(const fs::path& file) { return file.filename().string().starts_with("enwik8"); }

// The file that `path` stands for.
fs::path Locate(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const fs::path& folder : {path, path / "enwik8", path / "enwik8_prefix"}) {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (IsEnwik8(entry.path()) && entry.is_regular_file(error)) found.push_back(entry.path());
    }
    // By name: enwik8, then enwik8.gz unless there are names between the two.
    std::ranges::sort(found);
    const auto whole = std::ranges::find(found, folder / "enwik8.gz");
    if (whole != found.end() && found.front().filename() != "enwik8") return *whole;
    if (!found.empty()) return found.front();
  }
  Fail(path, "be a file, or a folder with one whose name begins with enwik8, in it or its enwik8",
       "neither");
}

}  // namespace

Text ReadBytes(const fs::path& path, int64_t most) {
  const fs::path file = Locate(path);
  Text text;
  text.characters = FileContent(file, "ReadBytes").Rest(most);
  if (text.characters.empty()) {
    throw DataError(fmt::format("[ReadBytes] {} must hold bytes but is empty", file.string()));
  }
  const int64_t size = std::ssize(text.characters);
  text.name = !IsEnwik8(file)     ? file.filename().string()
              : size == kWholeSet ? "enwik8"
                                  : "enwik8 prefix";
  text.source = "files";
  text.description = fmt::format("{} bytes read from {}", FormatInteger(size), file.string());
  Sha256 sha;
  sha.Update({reinterpret_cast<const uint8_t*>(text.characters.data()), text.characters.size()});
  text.sha256 = sha.Hex();
  return text;
}

Text OpenBytes(const std::optional<fs::path>& path, int64_t most) {
  return path ? ReadBytes(*path, most) : MakeText(std::min(most, kMaxMadeText));
}

}  // namespace planish::lab
