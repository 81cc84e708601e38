#include "lab/data/idx.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lab/base/format_integer.h"
#include "lab/data/idx_files.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kClasses = 10;

constexpr std::array<std::string_view, 2> kInner = {"mnist", "MNIST/raw"};

Images ReadSplit(const IdxFiles& files, const fs::path& folder, const std::string& split) {
  const fs::path images_file = files.Find(folder, split + "-images-idx3-ubyte");
  const fs::path labels_file = files.Find(folder, split + "-labels-idx1-ubyte");
  Images images{.height = kIdxSide, .width = kIdxSide};
  images.pixels = files.Images(images_file);
  images.labels = files.Labels(labels_file);
  images.count = std::ssize(images.pixels) / (kIdxSide * kIdxSide);
  if (std::ssize(images.labels) != images.count) {
    files.Fail(labels_file,
               fmt::format("hold a label for each of the {} images of {}",
                           FormatInteger(images.count), images_file.filename().string()),
               FormatInteger(std::ssize(images.labels)));
  }
  for (size_t i = 0; i < images.labels.size(); ++i) {
    if (images.labels[i] >= kClasses) {
      files.Fail(labels_file, fmt::format("hold labels from 0 to {}", kClasses - 1),
                 fmt::format("{} at index {}", images.labels[i], i));
    }
  }
  return images;
}

}  // namespace

ImageSet LoadMnist(const fs::path& folder) {
  const IdxFiles files("LoadMnist");
  const std::vector<std::string> names = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte",
                                          "train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"};
  const fs::path found = files.Locate(folder, kInner, names, "the files of MNIST");
  ImageSet set;
  set.train = ReadSplit(files, found, "train");
  set.test = ReadSplit(files, found, "t10k");
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
