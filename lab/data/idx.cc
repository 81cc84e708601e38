#include "lab/data/idx.h"

#include <fmt/format.h>

#include <array>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/error.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kSide = 28;
constexpr int64_t kClasses = 10;
constexpr int64_t kMaxCount = 10'000'000;

// HashImages of the distributed MNIST.
constexpr char kMnistSha256[] = "b2d8f5bf39174ee5ffeefa97e42d673c35432b411bb5d1f74fbbeddae7f1690a";

[[noreturn]] void Fail(const fs::path& file, const std::string& must, const std::string& has) {
  throw DataError(fmt::format("[LoadMnist] {} must {} but has {}", file.string(), must, has));
}

// Reads one idx file of unsigned bytes: `dims` are those after the first, which is the number of
// cases.
std::vector<uint8_t> ReadIdx(const fs::path& file, int64_t magic, std::span<const int64_t> dims) {
  FileContent content(file, "LoadMnist");
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
      Fail(file, fmt::format("hold images of {0} x {0} pixels", kSide),
           fmt::format("{} x {}", word(2), word(3)));
    }
    size *= dims[i];
  }
  const std::string must =
      fmt::format("have {} bytes as its header says", FormatInteger(header_size + size));
  if (header_size + size > content.UpperBound()) {
    Fail(file, must, (content.is_gzip() ? "at most " : "") + FormatInteger(content.UpperBound()));
  }
  std::vector<uint8_t> data(static_cast<size_t>(size));
  const int64_t read = content.Read(data);
  if (read < size) Fail(file, must, FormatInteger(header_size + read));
  uint8_t extra;
  if (content.Read({&extra, 1}) != 0) Fail(file, must, "more");
  return data;
}

// `name` or `name`.gz in `folder`; empty when there is neither.
fs::path Find(const fs::path& folder, const std::string& name) {
  for (const char* suffix : {"", ".gz"}) {
    fs::path file = folder / (name + suffix);
    std::error_code error;
    if (fs::exists(file, error)) return file;
    if (error) Fail(file, "be readable", error.message());
  }
  return {};
}

constexpr const char* kImages[] = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"};
constexpr const char* kLabels[] = {"train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"};

bool HoldsAny(const fs::path& folder) {
  for (const int split : {0, 1}) {
    if (!Find(folder, kImages[split]).empty() || !Find(folder, kLabels[split]).empty()) return true;
  }
  return false;
}

fs::path Locate(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) {
    Fail(folder, "be a folder with the files of MNIST",
         status.type() == fs::file_type::not_found ? "no such folder" : error.message());
  }
  if (!fs::is_directory(status)) {
    Fail(folder, "be a folder with the files of MNIST", "another type");
  }
  for (const fs::path& candidate : {folder, folder / "mnist", folder / "MNIST" / "raw"}) {
    if (HoldsAny(candidate)) return candidate;
  }
  Fail(folder,
       fmt::format("hold {}[.gz] and its three companions, in it or in mnist or MNIST/raw below it",
                   kImages[0]),
       "none of them");
}

Images ReadSplit(const fs::path& folder, int split) {
  const auto find = [&](const std::string& name) {
    fs::path file = Find(folder, name);
    if (file.empty()) Fail(folder, fmt::format("hold {0} or {0}.gz", name), "neither");
    return file;
  };
  const fs::path images_file = find(kImages[split]);
  const fs::path labels_file = find(kLabels[split]);
  Images images{.height = kSide, .width = kSide};
  images.pixels = ReadIdx(images_file, kIdxImagesMagic, std::array{kSide, kSide});
  images.labels = ReadIdx(labels_file, kIdxLabelsMagic, {});
  images.count = std::ssize(images.pixels) / (kSide * kSide);
  if (std::ssize(images.labels) != images.count) {
    Fail(labels_file,
         fmt::format("hold a label for each of the {} images of {}", FormatInteger(images.count),
                     images_file.filename().string()),
         FormatInteger(std::ssize(images.labels)));
  }
  for (size_t i = 0; i < images.labels.size(); ++i) {
    if (images.labels[i] >= kClasses) {
      Fail(labels_file, fmt::format("hold labels from 0 to {}", kClasses - 1),
           fmt::format("{} at index {}", images.labels[i], i));
    }
  }
  return images;
}

}  // namespace

ImageSet LoadMnist(const fs::path& folder) {
  const fs::path found = Locate(folder);
  ImageSet set;
  set.train = ReadSplit(found, 0);
  set.test = ReadSplit(found, 1);
  set.source = "files";
  set.sha256 = HashImages(set.train, set.test);
  const bool is_mnist = set.sha256 == kMnistSha256;
  set.name = is_mnist ? "mnist" : "idx images";
  set.description =
      fmt::format("{}, {} training and {} test images read from {}",
                  is_mnist ? "MNIST" : "images in MNIST's format (not MNIST itself)",
                  FormatInteger(set.train.count), FormatInteger(set.test.count), found.string());
  return set;
}

}  // namespace planish::lab
