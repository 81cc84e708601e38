#include "lab/data/idx_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <system_error>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/images.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMaxCount = 10'000'000;

// Returns an empty path if there is neither `name` nor `name`.gz.
fs::path FindPlainOrGzip(const fs::path& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    fs::path file = folder / (name + suffix);
    std::error_code error;
    if (fs::exists(file, error)) return file;
    if (error) FailToRead(file, error.message());
  }
  return {};
}

// `dims` are the sizes after the first, which is the number of cases. Sizes of 0 are replaced by
// those of the file.
std::vector<uint8_t> ReadIdx(const fs::path& file, int64_t magic, std::span<int64_t> dims) {
  FileContent content(file);
  std::array<uint8_t, 16> header;
  const int64_t header_size = 8 + 4 * std::ssize(dims);
  const int64_t header_read =
      content.Read(std::span(header).first(static_cast<size_t>(header_size)));
  if (header_read < header_size) {
    FailToRead(file, fmt::format("it ends at byte {}; a header of {} bytes was expected",
                                 header_read, header_size));
  }
  const auto word = [&](size_t i) {
    return int64_t{header[4 * i]} << 24 | int64_t{header[4 * i + 1]} << 16 |
           int64_t{header[4 * i + 2]} << 8 | int64_t{header[4 * i + 3]};
  };
  if (word(0) != magic) {
    FailToRead(file, fmt::format("its idx magic number is {:#010x}; {:#010x} was expected", word(0),
                                 magic));
  }
  const int64_t count = word(1);
  if (count < 1 || count > kMaxCount) {
    FailToRead(file, fmt::format("its header gives {} cases; 1 to {} are allowed",
                                 FormatInteger(count), FormatInteger(kMaxCount)));
  }
  int64_t size = count;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t side = word(2 + i);
    if (dims[i] == 0 && (side < 1 || side > kMaxImageSide)) {
      FailToRead(file, fmt::format("its images have {} x {} pixels; sides from 1 to {} are allowed",
                                   word(2), word(3), kMaxImageSide));
    }
    if (dims[i] == 0) dims[i] = side;
    if (side != dims[i]) {
      FailToRead(file, fmt::format("its images have {} x {} pixels; {} x {} were expected", word(2),
                                   word(3), kIdxSide, kIdxSide));
    }
    size *= dims[i];
  }
  const std::string expected = FormatInteger(header_size + size);
  const auto fail_short = [&](const std::string& has) {
    FailToRead(file, fmt::format("it has {} bytes; its header requires {}", has, expected));
  };
  if (header_size + size > content.UpperBound()) {
    fail_short((content.is_packed() ? "at most " : "") + FormatInteger(content.UpperBound()));
  }
  std::vector<uint8_t> data =
      ReadInMemory(file, [&] { return std::vector<uint8_t>(static_cast<size_t>(size)); });
  const int64_t read = content.Read(data);
  if (read < size) fail_short(FormatInteger(header_size + read));
  uint8_t extra;
  if (content.Read({&extra, 1}) != 0) {
    FailToRead(file,
               fmt::format("it has more than the {} bytes that its header requires", expected));
  }
  return data;
}

}  // namespace

void AddIdxHeader(Sha256& sha, std::initializer_list<int64_t> words) {
  for (const int64_t word : words) {
    const uint8_t bytes[] = {static_cast<uint8_t>(word >> 24), static_cast<uint8_t>(word >> 16),
                             static_cast<uint8_t>(word >> 8), static_cast<uint8_t>(word)};
    sha.Update(bytes);
  }
}

fs::path LocateIdxFiles(const fs::path& folder, std::span<const std::string_view> inner,
                        std::span<const std::string> names, const std::string& what) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) {
    FailToRead(folder,
               status.type() == fs::file_type::not_found ? "no such folder" : error.message());
  }
  if (!fs::is_directory(status)) FailToRead(folder, "it is not a folder with " + what);
  std::vector<fs::path> candidates = {folder};
  for (const std::string_view below : inner) candidates.push_back(folder / below);
  for (const fs::path& candidate : candidates) {
    for (const std::string& name : names) {
      if (!FindPlainOrGzip(candidate, name).empty()) return candidate;
    }
  }
  throw DataError(fmt::format("{} has none of {} ({}[.gz], ...), itself or in a folder {}",
                              Escaped(folder.string()), what, names.front(),
                              fmt::join(inner, " or ")));
}

fs::path FindIdxFile(const fs::path& folder, const std::string& name) {
  fs::path file = FindPlainOrGzip(folder, name);
  if (file.empty()) FailWithoutFile(folder, name);
  return file;
}

std::vector<uint8_t> ReadIdxImages(const fs::path& file) {
  std::array dims = {kIdxSide, kIdxSide};
  return ReadIdx(file, kIdxImagesMagic, dims);
}

IdxImages ReadIdxImagesOfAnySize(const fs::path& file) {
  std::array<int64_t, 2> dims = {0, 0};
  IdxImages images;
  images.pixels = ReadIdx(file, kIdxImagesMagic, dims);
  images.height = dims[0];
  images.width = dims[1];
  images.count = std::ssize(images.pixels) / (dims[0] * dims[1]);
  return images;
}

std::vector<uint8_t> ReadIdxLabels(const fs::path& file) {
  return ReadIdx(file, kIdxLabelsMagic, {});
}

}  // namespace planish::lab
