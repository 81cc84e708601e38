#include "lab/data/idx_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <system_error>

#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxCount = 10'000'000;

}  // namespace

void AddIdxHeader(Sha256& sha, std::initializer_list<int64_t> words) {
  for (const int64_t word : words) {
    const uint8_t bytes[] = {static_cast<uint8_t>(word >> 24), static_cast<uint8_t>(word >> 16),
                             static_cast<uint8_t>(word >> 8), static_cast<uint8_t>(word)};
    sha.Update(bytes);
  }
}

void IdxFiles::Fail(const fs::path& file, const std::string& must, const std::string& has) const {
  throw DataError(fmt::format("[{}] {} must {}, got {}", function_, file.string(), must, has));
}

fs::path IdxFiles::Locate(const fs::path& folder, std::span<const std::string_view> inner,
                          std::span<const std::string> names, const std::string& what) const {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) {
    Fail(folder, "be a folder with " + what,
         status.type() == fs::file_type::not_found ? "no such folder" : error.message());
  }
  if (!fs::is_directory(status)) Fail(folder, "be a folder with " + what, "another type");
  std::vector<fs::path> candidates = {folder};
  for (const std::string_view below : inner) candidates.push_back(folder / below);
  for (const fs::path& candidate : candidates) {
    for (const std::string& name : names) {
      if (!FindAny(candidate, name).empty()) return candidate;
    }
  }
  Fail(folder,
       fmt::format("hold {}[.gz] and its companions, in it or in {} below it", names.front(),
                   fmt::join(inner, " or ")),
       "none of them");
}

fs::path IdxFiles::FindAny(const fs::path& folder, const std::string& name) const {
  for (const char* suffix : {"", ".gz"}) {
    fs::path file = folder / (name + suffix);
    std::error_code error;
    if (fs::exists(file, error)) return file;
    if (error) FailToRead(file, error.message());
  }
  return {};
}

fs::path IdxFiles::Find(const fs::path& folder, const std::string& name) const {
  fs::path file = FindAny(folder, name);
  if (file.empty()) Fail(folder, fmt::format("hold {0} or {0}.gz", name), "neither");
  return file;
}

std::vector<uint8_t> IdxFiles::Images(const fs::path& file) const {
  return Read(file, kIdxImagesMagic, std::array{kIdxSide, kIdxSide});
}

std::vector<uint8_t> IdxFiles::Labels(const fs::path& file) const {
  return Read(file, kIdxLabelsMagic, {});
}

// `dims` are the sizes after the first, which is the number of cases.
std::vector<uint8_t> IdxFiles::Read(const fs::path& file, int64_t magic,
                                    std::span<const int64_t> dims) const {
  FileContent content(file);
  std::array<uint8_t, 16> header;
  const int64_t header_size = 8 + 4 * std::ssize(dims);
  const int64_t header_read =
      content.Read(std::span(header).first(static_cast<size_t>(header_size)));
  if (header_read < header_size) {
    Fail(file, fmt::format("begin with a header of {} bytes", header_size),
         fmt::format("{}", header_read));
  }
  const auto word = [&](size_t i) {
    return int64_t{header[4 * i]} << 24 | int64_t{header[4 * i + 1]} << 16 |
           int64_t{header[4 * i + 2]} << 8 | int64_t{header[4 * i + 3]};
  };
  if (word(0) != magic) {
    Fail(file, fmt::format("begin with the idx magic number {:#010x}", magic),
         fmt::format("{:#010x}", word(0)));
  }
  const int64_t count = word(1);
  if (count < 1 || count > kMaxCount) {
    Fail(file, fmt::format("hold 1 to {} cases", FormatInteger(kMaxCount)), FormatInteger(count));
  }
  int64_t size = count;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (word(2 + i) != dims[i]) {
      Fail(file, fmt::format("hold images of {0} x {0} pixels", kIdxSide),
           fmt::format("{} x {}", word(2), word(3)));
    }
    size *= dims[i];
  }
  const std::string must =
      fmt::format("have {} bytes as its header says", FormatInteger(header_size + size));
  if (header_size + size > content.UpperBound()) {
    Fail(file, must, (content.is_gzip() ? "at most " : "") + FormatInteger(content.UpperBound()));
  }
  std::vector<uint8_t> data =
      ReadInMemory(file, [&] { return std::vector<uint8_t>(static_cast<size_t>(size)); });
  const int64_t read = content.Read(data);
  if (read < size) Fail(file, must, FormatInteger(header_size + read));
  uint8_t extra;
  if (content.Read({&extra, 1}) != 0) Fail(file, must, "more");
  return data;
}

}  // namespace planish::lab
