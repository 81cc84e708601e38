#include "lab/tasks/draw/binary_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "lab/base/format_integer.h"
#include "lab/data/digits.h"
#include "lab/data/file_content.h"
#include "lab/data/idx_files.h"
#include "lab/papers/paper_data.h"

namespace planish::lab {

namespace fs = std::filesystem;

namespace {

static_assert(kBinaryImagePixels == kIdxSide * kIdxSide);

int64_t ImageCount(const std::vector<uint8_t>& pixels) {
  return std::ssize(pixels) / kBinaryImagePixels;
}

std::string Hash(const BinaryImageSet& set) {
  Sha256 sha;
  for (const std::vector<uint8_t>* pixels : {&set.train, &set.valid, &set.test}) {
    AddIdxHeader(sha, {kIdxImagesMagic, ImageCount(*pixels), kIdxSide, kIdxSide});
    sha.Update(*pixels);
  }
  return sha.Hex();
}

// Returns text like "50,000 training, 10,000 validation and 10,000 test images".
std::string Counts(const BinaryImageSet& set) {
  return fmt::format("{} training, {} validation and {} test images",
                     FormatInteger(ImageCount(set.train)), FormatInteger(ImageCount(set.valid)),
                     FormatInteger(ImageCount(set.test)));
}

std::vector<uint8_t> ReadSplit(const fs::path& folder, const std::string& name) {
  const fs::path file = FindIdxFile(folder, name);
  std::vector<uint8_t> pixels = ReadIdxImages(file);
  const auto wrong = std::ranges::find_if(pixels, [](uint8_t pixel) { return pixel > 1; });
  if (wrong != pixels.end()) {
    FailToRead(file, fmt::format("image {} has a pixel of {}; pixels are 0 or 1",
                                 (wrong - pixels.begin()) / kBinaryImagePixels, *wrong));
  }
  return pixels;
}

}  // namespace

BinaryImageSet LoadBinaryMnist(const fs::path& folder) {
  constexpr std::array<std::string_view, 1> kInner = {"mnist_binarized"};
  std::vector<std::string> names;
  for (const char* split : {"train", "valid", "test"})
    names.push_back(fmt::format("binarized_mnist_{}-images-idx3-ubyte", split));
  const fs::path found = LocateIdxFiles(folder, kInner, names, "binarized MNIST's files");
  BinaryImageSet set;
  set.train = ReadSplit(found, names[0]);
  set.valid = ReadSplit(found, names[1]);
  set.test = ReadSplit(found, names[2]);
  set.source = "files";
  set.sha256 = Hash(set);
  const bool is_own = IsPaperData("binarized mnist", set.sha256);
  set.name = is_own ? "binarized mnist" : "binary idx images";
  set.description = fmt::format(
      "{}, {} read from {}",
      is_own ? "MNIST in its fixed binarization" : "binary images (not the fixed binarized MNIST)",
      Counts(set), found.string());
  return set;
}

BinaryImageSet DrawBinaryDigits(int64_t train, int64_t valid, int64_t test) {
  const ImageSet drawn = DrawDigits({.train = train + valid, .test = test});
  const auto binary = [](const Images& images, int64_t begin, int64_t count) {
    std::vector<uint8_t> pixels(static_cast<size_t>(count * kBinaryImagePixels));
    std::transform(images.pixels.begin() + begin * kBinaryImagePixels,
                   images.pixels.begin() + (begin + count) * kBinaryImagePixels, pixels.begin(),
                   [](uint8_t grey) { return static_cast<uint8_t>(grey >= 128); });
    return pixels;
  };
  BinaryImageSet set;
  set.train = binary(drawn.train, 0, train);
  set.valid = binary(drawn.train, train, valid);
  set.test = binary(drawn.test, 0, test);
  set.name = "drawn binary digits";
  set.source = "embedded";
  set.description =
      fmt::format("black and white digits drawn by planish (not MNIST): {}", Counts(set));
  set.sha256 = Hash(set);
  return set;
}

}  // namespace planish::lab
