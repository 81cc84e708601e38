#include "lab/data/idx.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lab/base/format_integer.h"
#include "lab/data/file_content.h"
#include "lab/data/idx_files.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kClasses = 10;

constexpr std::array<std::string_view, 2> kInner = {"mnist", "MNIST/raw"};

Images ReadSplit(const fs::path& folder, const std::string& split) {
  const fs::path images_file = FindIdxFile(folder, split + "-images-idx3-ubyte");
  const fs::path labels_file = FindIdxFile(folder, split + "-labels-idx1-ubyte");
  Images images{.height = kIdxSide, .width = kIdxSide};
  images.pixels = ReadIdxImages(images_file);
  images.labels = ReadIdxLabels(labels_file);
  images.count = std::ssize(images.pixels) / (kIdxSide * kIdxSide);
  if (std::ssize(images.labels) != images.count) {
    FailToRead(labels_file,
               fmt::format("it has {} for the {} of {}", Count(std::ssize(images.labels), "label"),
                           Count(images.count, "image"), images_file.filename().string()));
  }
  for (size_t i = 0; i < images.labels.size(); ++i) {
    if (images.labels[i] >= kClasses) {
      FailToRead(labels_file, fmt::format("the label at index {} is {}; labels are from 0 to {}", i,
                                          images.labels[i], kClasses - 1));
    }
  }
  return images;
}

}  // namespace

ImageSet LoadMnist(const fs::path& folder) {
  const std::vector<std::string> names = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte",
                                          "train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"};
  const fs::path found = LocateIdxFiles(folder, kInner, names, "the files of MNIST");
  ImageSet set;
  set.train = ReadSplit(found, "train");
  set.test = ReadSplit(found, "t10k");
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
