#include "lab/tasks/images/image_files.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "lab/data/png.h"
#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ReadImageFilesTest : public ::testing::Test {
 protected:
  // Writes a grey image of 3 x 2 pixels, all of the value.
  void Write(const fs::path& file, uint8_t value, int64_t width = 2, int64_t height = 3) {
    fs::create_directories((folder / file.string()).parent_path());
    const std::vector<uint8_t> pixels(static_cast<size_t>(width * height), value);
    WriteFile(folder / file.string(), EncodePng(pixels, width));
  }
  // Writes `count` images of a class, of the values first, first + 1 and so on.
  void WriteClass(const std::string& name, uint8_t first, int count) {
    for (int i = 0; i < count; ++i) {
      Write(fmt::format("{}/{:02}.png", name, i), static_cast<uint8_t>(first + i));
    }
  }
  std::unique_ptr<DigitCases> Read(const ImageFiles& options = {}, const std::string& below = "") {
    return ReadImageFiles(folder / below, options);
  }
  std::string ErrorOf(const ImageFiles& options = {}, const std::string& below = "") {
    try {
      Read(options, below);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }
  // Value of the first pixel of each case -> its class.
  static std::map<int, int64_t> Values(const Cases& cases) {
    std::map<int, int64_t> values;
    for (int64_t i = 0; i < cases.x.size(0); ++i) {
      const auto value = static_cast<int>(std::lround(cases.x[i][0].item<double>() * 255));
      values.emplace(value, cases.labels[i].item<int64_t>());
    }
    return values;
  }
  TestFolder folder;
};

TEST_F(ReadImageFilesTest, ReadsAFolderForEachClass) {
  WriteClass("cat", 0, 20);
  WriteClass("a dog", 100, 20);
  WriteFile(folder / "readme.txt", "beside the classes");
  WriteFile(folder / "cat/Thumbs.db", "x");
  const auto data = Read();
  EXPECT_EQ(data->classes, 2);
  EXPECT_EQ(data->shape, (ImageShape{3, 2, 1}));
  EXPECT_EQ(data->train.x.sizes(), (std::vector<int64_t>{32, 6}));
  EXPECT_EQ(data->valid.x.size(0), 4);
  EXPECT_EQ(data->test.x.size(0), 4);
  std::map<int, int64_t> all = Values(data->train);
  all.merge(Values(data->valid));
  all.merge(Values(data->test));
  ASSERT_EQ(all.size(), 40u);
  for (const auto& [value, label] : all) EXPECT_EQ(label, value < 100 ? 1 : 0) << value;
  // Every pixel is the byte over 255.
  EXPECT_TRUE(data->train.x.eq(data->train.x.slice(1, 0, 1)).all().item<bool>());
  EXPECT_THAT(data->about.description,
              AllOf(HasSubstr("40 grey images of 3 x 2 pixels read from "),
                    HasSubstr("; 2 classes: \"a dog\" (20), \"cat\" (20); valid_share=0.1 and "
                              "test_share=0.1 at random in each class (split_seed=1)"),
                    HasSubstr("; 1 other file left out")));
  EXPECT_EQ(data->about.name, folder.path().filename().string());
  EXPECT_EQ(data->about.sizes,
            (std::map<std::string, int64_t>{{"train", 32}, {"valid", 4}, {"test", 4}}));
}

TEST_F(ReadImageFilesTest, SplitsByTheSeedAlone) {
  WriteClass("a", 0, 20);
  WriteClass("b", 100, 20);
  const auto one = Read(), again = Read(), other = Read({.sets = {.seed = 2}});
  EXPECT_TRUE(one->train.x.equal(again->train.x));
  EXPECT_EQ(one->about.sha256, other->about.sha256);
  EXPECT_NE(Values(one->test), Values(other->test));
  EXPECT_EQ(Read({.sets = {.max_train = 5}})->train.x.size(0), 5);
}

TEST_F(ReadImageFilesTest, ReadsSetsInFolders) {
  WriteClass("train/a", 0, 4);
  WriteClass("train/b", 50, 4);
  WriteClass("test/a", 100, 2);
  WriteClass("test/b", 150, 2);
  const auto drawn = Read();
  EXPECT_EQ(Values(drawn->test), (std::map<int, int64_t>{{100, 0}, {101, 0}, {150, 1}, {151, 1}}));
  EXPECT_EQ(drawn->train.x.size(0), 7);
  EXPECT_THAT(drawn->about.description, HasSubstr("sets by folders, valid_share=0.1 at random"));
  WriteClass("val/a", 200, 1);
  const auto given = Read();
  EXPECT_EQ(given->train.x.size(0), 8);
  EXPECT_EQ(Values(given->valid), (std::map<int, int64_t>{{200, 0}}));
  WriteClass("dev/a", 210, 1);
  EXPECT_THAT(ErrorOf(), HasSubstr("is of the same set"));
}

TEST_F(ReadImageFilesTest, ReadsTheFolderImages) {
  WriteClass("images/a", 0, 4);
  WriteClass("images/b", 50, 4);
  EXPECT_EQ(Read()->about.sizes.at("train"), 6);
}

TEST_F(ReadImageFilesTest, ConvertsColors) {
  WriteClass("a", 0, 4);
  WriteClass("b", 50, 3);
  // Red: 8 bits, RGB, without a filter.
  WriteFile(folder / "b/red.png", ReadFile(folder / "b/00.png"));
  EXPECT_EQ(Read({.colors = Colors::kColor})->shape, (ImageShape{3, 2, 3}));
  const auto color = Read({.colors = Colors::kColor});
  EXPECT_TRUE(color->train.x.view({-1, 6, 3})
                  .eq(color->train.x.view({-1, 6, 3}).slice(2, 0, 1))
                  .all()
                  .item<bool>());
  EXPECT_THAT(color->about.description, HasSubstr("; 8 images converted to color"));
  EXPECT_EQ(Read({.colors = Colors::kGrey})->shape, (ImageShape{3, 2, 1}));
}

TEST_F(ReadImageFilesTest, ReadsIdxFilesOfAnySizeAndClass) {
  const auto write = [&](const std::string& prefix, uint32_t count, bool gzip) {
    std::string pixels, labels;
    for (uint32_t i = 0; i < count; ++i) {
      pixels += std::string(20, static_cast<char>(i));
      labels += static_cast<char>(1 + 50 * (i % 3));
    }
    const auto put = [&](const std::string& name, const std::string& bytes) {
      WriteFile(folder / (prefix + name + (gzip ? ".gz" : "")), gzip ? Gzip(bytes) : bytes);
    };
    put("images-idx3-ubyte", Idx({0x803, count, 4, 5}, pixels));
    put("labels-idx1-ubyte", Idx({0x801, count}, labels));
  };
  write("some-letters-train-", 30, true);
  write("some-letters-test-", 6, false);
  const auto data = Read();
  EXPECT_EQ(data->classes, 3);
  EXPECT_EQ(data->shape, (ImageShape{4, 5, 1}));
  EXPECT_EQ(data->about.sizes.at("train"), 27);
  EXPECT_EQ(Values(data->test),
            (std::map<int, int64_t>{{0, 0}, {1, 1}, {2, 2}, {3, 0}, {4, 1}, {5, 2}}));
  EXPECT_THAT(data->about.description,
              HasSubstr("3 classes: \"1\" (12), \"51\" (12), \"101\" (12); sets by files"));
  WriteFile(folder / "some-letters-test-labels-idx1-ubyte", Idx({0x801, 5}, std::string(5, '\1')));
  EXPECT_THAT(ErrorOf(), HasSubstr("some-letters-test-labels-idx1-ubyte: it has 5 labels for the 6 "
                                   "images of some-letters-test-images-idx3-ubyte"));
  fs::remove(folder / "some-letters-test-labels-idx1-ubyte");
  EXPECT_THAT(ErrorOf(), HasSubstr(" has no file some-letters-test-labels-idx1-ubyte"));
}

std::string Npy(const std::string& descr, const std::string& shape, const std::string& bytes) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}\n", descr, shape);
  const auto size = static_cast<uint16_t>(header.size());
  std::string start = "\x93NUMPY\1";
  start += '\0';
  start += static_cast<char>(size & 255);
  start += static_cast<char>(size >> 8);
  return start + header + bytes;
}

TEST_F(ReadImageFilesTest, ReadsNpyFiles) {
  std::string pixels, labels;
  for (int i = 0; i < 20; ++i) {
    for (int p = 0; p < 4; ++p) pixels += {static_cast<char>(i), static_cast<char>(p), '\7'};
    labels += {static_cast<char>(i % 2 == 0 ? 5 : 0xff), static_cast<char>(i % 2 == 0 ? 0 : 0xff)};
  }
  WriteFile(folder / "x_train.npy", Npy("|u1", "20, 2, 2, 3", pixels));
  WriteFile(folder / "y_train.npy", Npy("<i2", "20, 1", labels));
  const auto data = Read();
  EXPECT_EQ(data->shape, (ImageShape{2, 2, 3}));
  EXPECT_THAT(data->about.description, HasSubstr("2 classes: \"-1\" (10), \"5\" (10)"));
  for (const auto& [value, label] : Values(data->train)) EXPECT_EQ(label, value % 2 == 0 ? 1 : 0);
  EXPECT_EQ(std::lround(data->train.x[0][4].item<double>() * 255), 1);  // green of the second pixel
  WriteFile(folder / "x_train.npy", Npy("|u1", "20, 12", pixels));
  EXPECT_THAT(ErrorOf(), HasSubstr("x_train.npy: its shape is (20, 12); (images, height, width)"));
  WriteFile(folder / "x_train.npy", Npy("<i4", "20, 2, 2", std::string(320, '\0')));
  EXPECT_THAT(ErrorOf(), HasSubstr("its elements have the type \"<i4\"; |u1, <f4, <f8 or <f2 was "
                                   "expected"));
}

TEST_F(ReadImageFilesTest, RoundsFloatsOfNpyFiles) {
  const auto write = [&](const std::vector<float>& first) {
    std::vector<float> values(20 * 4, 0.0F);
    std::ranges::copy(first, values.begin() + 4);
    WriteFile(folder / "x.npy",
              Npy("<f4", "20, 2, 2", {reinterpret_cast<const char*>(values.data()), 320}));
    std::string labels;
    for (int i = 0; i < 20; ++i) labels += static_cast<char>(i % 2);
    WriteFile(folder / "y.npy", Npy("|u1", "20", labels));
  };
  // Returns the largest pixel.
  const auto max = [&] {
    const auto data = Read();
    double value = 0;
    for (const Cases* cases : {&data->train, &data->valid, &data->test}) {
      value = std::max(value, cases->x.max().item<double>());
    }
    return std::lround(value * 255);
  };
  write({0.5F, 0.25F});  // at most 1: from 0 to 1
  EXPECT_EQ(max(), 128);
  write({1.0F});
  EXPECT_EQ(max(), 255);
  write({1.5F, 100.4F});  // from 0 to 255
  EXPECT_EQ(max(), 100);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const auto& [value, text] : {std::pair(kNan, "nan"), std::pair(kInf, "inf"),
                                    std::pair(-0.5F, "-0.5"), std::pair(256.0F, "256")}) {
    write({0, 0, value});
    EXPECT_THAT(ErrorOf(), HasSubstr(fmt::format("x.npy: its element [1, 1, 0] is {}; numbers from "
                                                 "0 to 1 or from 0 to 255 were expected",
                                                 text)));
  }
}

// Returns members of an npz file: `count` images of 2 x 2 pixels from the value `first` on, of the
// classes 0 and 1 in turns.
std::vector<ZipPart> ArraysOf(const std::string& images, const std::string& labels, int first,
                              int count, bool deflate = false) {
  std::string pixels, classes;
  for (int i = 0; i < count; ++i) {
    pixels += std::string(4, static_cast<char>(first + i));
    classes += static_cast<char>(i % 2);
  }
  return {{.name = images + ".npy",
           .content = Npy("|u1", fmt::format("{}, 2, 2", count), pixels),
           .deflate = deflate},
          {.name = labels + ".npy",
           .content = Npy("|u1", fmt::format("{},", count), classes),
           .deflate = deflate}};
}

std::vector<ZipPart> operator+(std::vector<ZipPart> a, const std::vector<ZipPart>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(ReadImageFilesTest, ReadsNpzFiles) {
  const std::map<int, int64_t> of_test = {{100, 0}, {101, 1}, {102, 0}, {103, 1}};
  for (const auto& [images, labels] :
       {std::pair("x_{}", "y_{}"), std::pair("{}_images", "{}_labels"), std::pair("X_{}", "y_{}"),
        std::pair("images_{}", "labels_{}"), std::pair("{}_x", "{}_y")}) {
    const auto arrays = [&, images, labels](const char* set, int first, int count, bool deflate) {
      return ArraysOf(fmt::format(fmt::runtime(images), set),
                      fmt::format(fmt::runtime(labels), set), first, count, deflate);
    };
    for (const bool zip64 : {false, true}) {
      WriteFile(folder / "mnist.npz",
                Zip(arrays("train", 0, 20, zip64) + arrays("test", 100, 4, zip64) +
                        std::vector<ZipPart>{{.name = "note.npy", .content = "of no type"}},
                    zip64));
      const auto data = Read();
      EXPECT_EQ(Values(data->test), of_test) << images;
      EXPECT_EQ(data->train.x.size(0) + data->valid.x.size(0), 20);
      EXPECT_THAT(data->about.description, HasSubstr("sets by files, valid_share=0.1 at random"));
      const auto of_file = Read({}, "mnist.npz");
      EXPECT_EQ(of_file->about.name, "mnist.npz");
      EXPECT_EQ(of_file->about.sha256, data->about.sha256);
    }
  }
}

TEST_F(ReadImageFilesTest, ReadsNpzFilesWithoutSets) {
  WriteFile(folder / "a.npz", Zip(ArraysOf("images", "labels", 0, 20)));
  EXPECT_EQ(Read()->about.sizes.at("train"), 16);
  fs::rename(folder / "a.npz", folder / "train.npz");
  WriteFile(folder / "test.npz", Zip(ArraysOf("x", "y", 100, 4)));
  EXPECT_EQ(Read()->about.sizes.at("train"), 18);
  EXPECT_EQ(Read()->about.sizes.at("test"), 4);
  WriteFile(folder / "more.npz", Zip(ArraysOf("x_test", "y_test", 100, 4)));
  EXPECT_THAT(ErrorOf(), HasSubstr("test.npz/x.npy: x_test.npy is of the same set"));
}

TEST_F(ReadImageFilesTest, NamesFileAndKeyOfAnNpzFile) {
  const auto error = [&](const std::vector<ZipPart>& parts) {
    WriteFile(folder / "a.npz", Zip(parts));
    return ErrorOf();
  };
  const std::vector<ZipPart> good = ArraysOf("x_train", "y_train", 0, 20);
  EXPECT_EQ(error(good), "no error");
  EXPECT_THAT(
      error({good[0], {.name = "label.npy"}}),
      HasSubstr("a.npz: it has x_train but no y_train; its keys are \"label\", \"x_train\""));
  EXPECT_THAT(
      error({{.name = "data.npy"}, {.name = "b"}}),
      HasSubstr("a.npz: it has no arrays of images and labels, such as x_train and y_train, "
                "or images and labels; its keys are \"b\", \"data\""));
  EXPECT_THAT(error({}), HasSubstr("its keys are none"));
  EXPECT_THAT(error(ArraysOf("x_test", "y_test", 0, 20)),
              HasSubstr("a.npz/x_test.npy: there are no training images beside it"));
  auto parts = good;
  parts[0].content = Npy("<i4", "20, 1, 1", std::string(80, '\0'));
  EXPECT_THAT(error(parts), HasSubstr("a.npz/x_train.npy: its elements have the type \"<i4\""));
  parts[0].content = Npy("|O", "20,", "\x80\4");  // images of several sizes
  EXPECT_THAT(error(parts), HasSubstr("a.npz/x_train.npy: its elements have the type \"|O\""));
  parts[0].content = Npy("|u1", "20, 4", std::string(80, '\0'));
  EXPECT_THAT(error(parts), HasSubstr("a.npz/x_train.npy: its shape is (20, 4); (images, height"));
  parts[0].content = Npy("|u1", "19, 2, 2", std::string(76, '\0'));
  EXPECT_THAT(error(parts),
              HasSubstr("a.npz/y_train.npy: it has 20 labels for the 19 images of x_train.npy"));
  // More bytes than the member can have.
  for (const char* shape : {"20, 2, 3", "4000000000, 4000000000, 2", "99999999999, 2, 2"}) {
    parts[0].content = Npy("|u1", shape, std::string(80, '\0'));
    EXPECT_THAT(error(parts), HasSubstr("a.npz/x_train.npy: it ends at byte "));
  }
  parts = good;
  parts[1].content = Npy("<f4", "20,", std::string(80, '\0'));
  EXPECT_THAT(error(parts), HasSubstr("a.npz/y_train.npy: its elements have the type \"<f4\""));
  parts = good;
  parts[1].flags = 1;
  EXPECT_THAT(error(parts), HasSubstr("a.npz/y_train.npy: it is encrypted"));
  std::vector<ZipPart> wide = ArraysOf("x_test", "y_test", 0, 2);
  wide[0].content = Npy("|u1", "2, 2, 1", "0000");
  EXPECT_THAT(error(good + wide), AllOf(HasSubstr("a.npz/x_test.npy: it has 2 x 1 pixels, but "),
                                        HasSubstr("a.npz/x_train.npy has 2 x 2")));
  WriteFile(folder / "a.npz", Zip(good).substr(0, 150));
  EXPECT_THAT(ErrorOf(),
              HasSubstr("a.npz: it does not end with the directory of a zip archive: it is "
                        "truncated"));
  EXPECT_THAT(ErrorOf({}, "none.npz"), HasSubstr("none.npz: No such file"));
}

TEST_F(ReadImageFilesTest, NamesTheFileOfAnError) {
  WriteClass("a", 0, 4);
  WriteClass("b", 50, 4);
  Write("b/wide.png", 1, 3, 3);
  EXPECT_THAT(ErrorOf(), AllOf(HasSubstr("b/wide.png: it has 3 x 3 pixels, but "),
                               HasSubstr("a/00.png has 3 x 2: scale all to one size first")));
  fs::remove(folder / "b/wide.png");
  WriteFile(folder / "b/x.png", ReadFile(folder / "b/00.png").substr(0, 30));
  EXPECT_THAT(ErrorOf(), HasSubstr("b/x.png: its PNG data is truncated"));
  fs::remove(folder / "b/x.png");
  WriteFile(folder / "b/photo.JPG", "GIF8");
  EXPECT_THAT(ErrorOf(), HasSubstr("b/photo.JPG: "));
  fs::remove(folder / "b/photo.JPG");
  WriteFile(folder / "b/photo.GIF", "GIF8");
  EXPECT_THAT(ErrorOf(), HasSubstr("b/photo.GIF: only PNG and JPEG images are read: convert it"));
  fs::remove(folder / "b/photo.GIF");
  fs::create_directories(folder / "c");
  EXPECT_THAT(ErrorOf(), HasSubstr("/c: it has no PNG or JPEG files; each folder here must be"));
  Write("c/only.png", 3);
  EXPECT_THAT(ErrorOf(), HasSubstr("c/only.png: only one image has the class \"c\""));
  fs::create_directories(folder / "c/more");
  EXPECT_THAT(ErrorOf(), HasSubstr("c/more: it is a folder within the folder of a class"));
}

TEST_F(ReadImageFilesTest, RefusesMissingClassesAndFiles) {
  EXPECT_THAT(ErrorOf(), HasSubstr(" has no images, itself or in a folder images: folders of PNG"));
  WriteClass("train/a", 0, 4);
  EXPECT_THAT(ErrorOf(), HasSubstr("all images have the class \"a\"; two classes or more"));
  WriteClass("train/b", 50, 4);
  WriteClass("test/a", 100, 2);
  WriteClass("test/d", 150, 2);
  EXPECT_THAT(ErrorOf(), HasSubstr("test/d/00.png: no training image has the class \"d\""));
  EXPECT_THAT(ErrorOf({}, "train/a/00.png"), HasSubstr("00.png: it is not a folder with images"));
  EXPECT_THAT(ErrorOf({}, "none"), HasSubstr("No such file"));
}

}  // namespace
}  // namespace planish::lab
