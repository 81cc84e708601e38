#include "lab/tasks/convnet/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "lab/error.h"

namespace planish::lab {
namespace {

constexpr size_t kPixels = 28 * 28;

std::string ImageAt(const Images& images, size_t i) {
  const auto begin = images.pixels.begin() + static_cast<std::ptrdiff_t>(i * kPixels);
  return {begin, begin + kPixels};
}

// Guards the bytes: runs on drawn shapes are comparable only if the shapes are equal.
TEST(DrawShapes, Golden) {
  EXPECT_EQ(DrawShapes({.train = 100, .test = 50, .seed = 1}).sha256,
            "18c1768292ada83e4f706a005f94e6d39654bff6c859bdfe3179baa1c75a0af5");
}

TEST(DrawShapes, HoldsEachClassOnceInTen) {
  const ImageSet set = DrawShapes({.train = 30, .test = 7, .seed = 3});
  EXPECT_EQ(set.train.count, 30);
  EXPECT_EQ(set.test.count, 7);
  EXPECT_EQ(set.train.pixels.size(), 30 * kPixels);
  for (size_t i = 0; i < 30; ++i) EXPECT_EQ(set.train.labels[i], i % 10);
  EXPECT_EQ(set.name, "drawn shapes");
  EXPECT_EQ(set.sha256, HashImages(set.train, set.test));
}

TEST(DrawShapes, NoTwoImagesAreAlike) {
  std::set<std::string> seen;
  for (const int64_t seed : {1, 2}) {
    const ImageSet set = DrawShapes({.train = 50, .test = 50, .seed = seed});
    for (size_t i = 0; i < 50; ++i) {
      seen.insert(ImageAt(set.train, i));
      seen.insert(ImageAt(set.test, i));
    }
  }
  EXPECT_EQ(seen.size(), 200u);
}

TEST(DrawShapes, ASmallerSetBeginsALargerOne) {
  const Images small = DrawShapes({.train = 13, .test = 0, .seed = 2}).train;
  const Images large = DrawShapes({.train = 37, .test = 0, .seed = 2}).train;
  EXPECT_TRUE(std::equal(small.pixels.begin(), small.pixels.end(), large.pixels.begin()));
}

// The classes differ: the mean images of two classes differ by more than those of two halves of one
// class, of 1,000 images each.
TEST(DrawShapes, ClassesDiffer) {
  constexpr size_t kCount = 20'000;
  const Images images = DrawShapes({.train = kCount, .test = 0, .seed = 1}).train;
  std::array<std::array<double, kPixels>, 20> means = {};  // class, half
  for (size_t i = 0; i < kCount; ++i) {
    auto& mean = means[images.labels[i] * 2u + i / 10 % 2];
    for (size_t p = 0; p < kPixels; ++p) mean[p] += images.pixels[i * kPixels + p] / 1000.0;
  }
  const auto distance = [&](size_t a, size_t b) {
    double sum = 0;
    for (size_t p = 0; p < kPixels; ++p) {
      sum += (means[a][p] - means[b][p]) * (means[a][p] - means[b][p]);
    }
    return sum;
  };
  for (size_t a = 0; a < 10; ++a) {
    for (size_t b = 0; b < 10; ++b) {
      if (a == b) continue;
      EXPECT_GT(distance(2 * a, 2 * b), distance(2 * a, 2 * a + 1)) << a << " " << b;
    }
  }
}

TEST(DrawShapes, RefusesImpossibleCounts) {
  EXPECT_THROW(DrawShapes({.train = -1}), UsageError);
  EXPECT_THROW(DrawShapes({.train = 1, .test = kMaxDrawn + 1}), UsageError);
  EXPECT_EQ(DrawShapes({.train = 0, .test = 0}).train.count, 0);
}

}  // namespace
}  // namespace planish::lab
