#include "lab/tasks/draw/binary_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "lab/data/digits.h"
#include "lab/data/source.h"
#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Returns `images` images whose pixels are 1 at every multiple of `period`.
std::string Pixels(int images, int period) {
  std::string pixels;
  for (int i = 0; i < images * 784; ++i) pixels += static_cast<char>(i % period == 0);
  return pixels;
}

// The three uncompressed files of a small set.
struct BinarySet {
  std::string train = Idx({0x803, 4, 28, 28}, Pixels(4, 3));
  std::string valid = Idx({0x803, 2, 28, 28}, Pixels(2, 5));
  std::string test = Idx({0x803, 1, 28, 28}, Pixels(1, 7));

  void Write(const fs::path& folder, bool gzip = false) const {
    fs::create_directories(folder);
    const auto write = [&](const std::string& split, const std::string& content) {
      const std::string name = "binarized_mnist_" + split + "-images-idx3-ubyte";
      WriteFile(folder / (gzip ? name + ".gz" : name), gzip ? Gzip(content) : content);
    };
    write("train", train);
    write("valid", valid);
    write("test", test);
  }
};

std::string ErrorOf(const fs::path& folder) {
  try {
    LoadBinaryMnist(folder);
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), AnyOf(StartsWith("cannot read "), HasSubstr(" has no")));
    return e.what();
  }
  ADD_FAILURE() << "LoadBinaryMnist did not throw";
  return "";
}

std::string ErrorOf(const std::function<void(BinarySet&)>& spoil) {
  const TestFolder temp;
  BinarySet set;
  spoil(set);
  set.Write(temp.path());
  return ErrorOf(temp.path());
}

TEST(LoadBinaryMnist, ReadsPlainAndGzip) {
  const TestFolder temp;
  BinarySet().Write(temp / "plain");
  BinarySet().Write(temp / "gzip/mnist_binarized", true);
  const BinaryImageSet set = LoadBinaryMnist(temp / "plain");
  const auto text = [](const std::vector<uint8_t>& pixels) {
    return std::string(pixels.begin(), pixels.end());
  };
  EXPECT_EQ(text(set.train), Pixels(4, 3));
  EXPECT_EQ(text(set.valid), Pixels(2, 5));
  EXPECT_EQ(text(set.test), Pixels(1, 7));
  EXPECT_EQ(set.name, "binary idx images");
  EXPECT_EQ(set.source, "files");
  EXPECT_EQ(set.description,
            "binary images (not the fixed binarized MNIST), 4 training, 2 validation and 1 test "
            "images read from " +
                (temp / "plain").string());
  const BinaryImageSet gzip = LoadBinaryMnist(temp / "gzip");
  EXPECT_EQ(gzip.sha256, set.sha256);
  EXPECT_EQ(gzip.train, set.train);
}

TEST(LoadBinaryMnist, NamesMissingFiles) {
  const TestFolder temp;
  EXPECT_THAT(ErrorOf(temp / "none"), HasSubstr("none: no such folder"));
  EXPECT_THAT(
      ErrorOf(temp.path()),
      HasSubstr(
          " has none of binarized MNIST's files (binarized_mnist_train-images-idx3-ubyte[.gz], "
          "...), itself or in a folder mnist_binarized"));
  for (const char* split : {"train", "valid", "test"}) {
    const TestFolder folder;
    BinarySet().Write(folder.path());
    const std::string name = std::string("binarized_mnist_") + split + "-images-idx3-ubyte";
    fs::remove(folder / name);
    EXPECT_THAT(ErrorOf(folder.path()), HasSubstr(" has no file " + name + " or "));
  }
}

TEST(LoadBinaryMnist, RefusesDamagedFiles) {
  // Grey levels, as in MNIST itself; the error names the first.
  EXPECT_THAT(ErrorOf([](BinarySet& s) {
                s.valid[16 + 784 + 5] = '\xFF';
                s.valid[16 + 784 + 9] = '\2';
              }),
              AllOf(HasSubstr("binarized_mnist_valid"),
                    HasSubstr("image 1 has a pixel of 255; pixels are 0 or 1")));
  EXPECT_THAT(ErrorOf([](BinarySet& s) { s.train.pop_back(); }),
              AllOf(HasSubstr("binarized_mnist_train"),
                    HasSubstr("it has 3,151 bytes; its header requires 3,152")));
  EXPECT_THAT(ErrorOf([](BinarySet& s) { s.test += '\1'; }),
              HasSubstr("it has more than the 800 bytes that its header requires"));
  EXPECT_THAT(ErrorOf([](BinarySet& s) { s.test = Idx({0x803, 1, 32, 28}, Pixels(2, 3)); }),
              HasSubstr("its images have 32 x 28 pixels; 28 x 28 were expected"));
  EXPECT_THAT(ErrorOf([](BinarySet& s) { s.test = Idx({0x801, 784}, Pixels(1, 3)); }),
              HasSubstr("its idx magic number is 0x00000801; 0x00000803 was expected"));
  EXPECT_THAT(ErrorOf([](BinarySet& s) { s.test = Idx({0x803, 0, 28, 28}, ""); }),
              HasSubstr("its header gives 0 cases; 1 to 10,000,000 are allowed"));
  EXPECT_THAT(ErrorOf([](BinarySet& s) {
                s.train = Gzip(s.train);
                s.train.pop_back();
              }),
              HasSubstr("truncated"));
}

TEST(LoadBinaryMnist, TheRealOne) {
  const std::optional<fs::path> folder = DataFolder("");
  if (!folder || !fs::exists(*folder / "mnist_binarized")) {
    GTEST_SKIP() << "PLANISH_DATA does not name a folder with mnist_binarized";
  }
  const BinaryImageSet set = LoadBinaryMnist(*folder);
  EXPECT_EQ(set.name, "binarized mnist");
  EXPECT_THAT(set.description,
              StartsWith("MNIST in its fixed binarization, 50,000 training, 10,000 validation and "
                         "10,000 test images read from "));
  EXPECT_EQ(set.train.size(), 50'000u * 784);
  EXPECT_EQ(set.valid.size(), 10'000u * 784);
  EXPECT_EQ(set.test.size(), 10'000u * 784);
  // MNIST's pixels have a mean of .1307 * 255 in training and .1325 * 255 in the test set, which
  // binarization preserves. The tolerance is the last printed digit.
  const auto mean = [](const std::vector<uint8_t>& pixels) {
    return std::accumulate(pixels.begin(), pixels.end(), 0.0) / static_cast<double>(pixels.size());
  };
  EXPECT_NEAR(mean(set.train), 0.1307, 2e-4);
  EXPECT_NEAR(mean(set.test), 0.1325, 2e-4);
}

TEST(DrawBinaryDigits, AreTheDrawnDigitsInBlackAndWhite) {
  const BinaryImageSet set = DrawBinaryDigits(7, 3, 2);
  ASSERT_EQ(set.train.size(), 7u * 784);
  ASSERT_EQ(set.valid.size(), 3u * 784);
  ASSERT_EQ(set.test.size(), 2u * 784);
  const ImageSet grey = DrawDigits({.train = 10, .test = 2});
  for (size_t i = 0; i < set.valid.size(); ++i) {
    ASSERT_EQ(set.valid[i], grey.train.pixels[7 * 784 + i] > 127) << i;
  }
  EXPECT_EQ(set.name, "drawn binary digits");
  EXPECT_EQ(set.description,
            "black and white digits drawn by planish (not MNIST): 7 training, 3 validation and 2 "
            "test images");
  EXPECT_EQ(set.sha256, DrawBinaryDigits(7, 3, 2).sha256);
  EXPECT_NE(set.sha256, DrawBinaryDigits(6, 3, 2).sha256);
  // A tenth to a fifth of the pixels, as in MNIST: neither noise nor blank paper.
  const double share = std::accumulate(set.train.begin(), set.train.end(), 0.0) / (7 * 784);
  EXPECT_GT(share, 0.08);
  EXPECT_LT(share, 0.25);
}

}  // namespace
}  // namespace planish::lab
