#include "lab/data/digits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "lab/error.h"

namespace planish::lab {
namespace {

constexpr size_t kPixels = 28 * 28;

// Returns an image as a string, which std::set orders by bytes.
std::string ImageAt(const Images& images, size_t i) {
  const auto begin = images.pixels.begin() + static_cast<std::ptrdiff_t>(i * kPixels);
  return {begin, begin + kPixels};
}

// Guards the bytes: runs on drawn digits are comparable only if the digits are equal. A change of
// the drawing changes this digest, and every published value.
TEST(DrawDigits, Golden) {
  const ImageSet set = DrawDigits({.train = 100, .test = 50, .seed = 1});
  EXPECT_EQ(set.sha256, "6c7d343380515a72498432bd848a88191dff1f5331d9166984e307634aecde42");
}

TEST(DrawDigits, Twice) {
  const ImageSet a = DrawDigits({.train = 20, .test = 20, .seed = 5});
  const ImageSet b = DrawDigits({.train = 20, .test = 20, .seed = 5});
  EXPECT_EQ(a.train.pixels, b.train.pixels);
  EXPECT_EQ(a.test.labels, b.test.labels);
  EXPECT_EQ(a.sha256, b.sha256);
}

TEST(DrawDigits, Shapes) {
  const ImageSet set = DrawDigits({.train = 13, .test = 7, .seed = 1});
  EXPECT_EQ(set.train.count, 13);
  EXPECT_EQ(set.test.count, 7);
  for (const Images* images : {&set.train, &set.test}) {
    EXPECT_EQ(images->height, 28);
    EXPECT_EQ(images->width, 28);
    EXPECT_EQ(std::ssize(images->pixels), images->count * 28 * 28);
    EXPECT_EQ(std::ssize(images->labels), images->count);
  }
  EXPECT_EQ(set.sha256, HashImages(set.train, set.test));
}

TEST(DrawDigits, ASmallerSetBeginsALargerOne) {
  const Images small = DrawDigits({.train = 13, .test = 0, .seed = 2}).train;
  const Images large = DrawDigits({.train = 37, .test = 0, .seed = 2}).train;
  EXPECT_TRUE(std::equal(small.pixels.begin(), small.pixels.end(), large.pixels.begin()));
  EXPECT_TRUE(std::equal(small.labels.begin(), small.labels.end(), large.labels.begin()));
}

TEST(DrawDigits, EachTenHoldEachClassInSomeOrder) {
  const ImageSet set = DrawDigits({.train = 200, .test = 100, .seed = 1});
  for (const Images* images : {&set.train, &set.test}) {
    std::set<std::string> orders;
    for (auto ten = images->labels.begin(); ten != images->labels.end(); ten += 10) {
      orders.emplace(ten, ten + 10);
      EXPECT_THAT(std::vector<uint8_t>(ten, ten + 10),
                  ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    }
    // 20 of the 3.6 million orders: two equal ones happen once in 20,000 times.
    EXPECT_EQ(orders.size(), images->labels.size() / 10);
  }
}

TEST(DrawDigits, SeedsSplitsAndIndicesDrawDifferentImages) {
  std::set<std::string> distinct;
  for (const int64_t seed :
       {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{2}, std::numeric_limits<int64_t>::max()}) {
    const ImageSet set = DrawDigits({.train = 300, .test = 200, .seed = seed});
    for (size_t i = 0; i < 300; ++i) distinct.insert(ImageAt(set.train, i));
    for (size_t i = 0; i < 200; ++i) distinct.insert(ImageAt(set.test, i));
  }
  EXPECT_EQ(distinct.size(), 5u * 500);
}

TEST(DrawDigits, NoneAndOne) {
  const ImageSet none = DrawDigits({.train = 0, .test = 0, .seed = 1});
  EXPECT_EQ(none.train.count, 0);
  EXPECT_TRUE(none.train.pixels.empty());
  EXPECT_TRUE(none.test.labels.empty());
  const ImageSet one = DrawDigits({.train = 1, .test = 1, .seed = 1});
  EXPECT_EQ(one.train.pixels.size(), kPixels);
  EXPECT_EQ(one.test.labels.size(), 1u);
  EXPECT_NE(none.sha256, one.sha256);
}

TEST(DrawDigits, WrongSizes) {
  const auto error_of = [](const Drawing& drawing) {
    try {
      DrawDigits(drawing);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string("nothing thrown");
  };
  EXPECT_EQ(error_of({.train = -1, .test = 5}),
            "[DrawDigits] train must be 0 to 1,000,000 images, got -1");
  EXPECT_EQ(error_of({.train = 5, .test = 1'000'001}),
            "[DrawDigits] test must be 0 to 1,000,000 images, got 1,000,001");
  EXPECT_EQ(error_of({.train = std::numeric_limits<int64_t>::max()}),
            "[DrawDigits] train must be 0 to 1,000,000 images, got 9,223,372,036,854,775,807");
  EXPECT_EQ(error_of({.test = std::numeric_limits<int64_t>::min()}),
            "[DrawDigits] test must be 0 to 1,000,000 images, got -9,223,372,036,854,775,808");
}

// White ink on black paper, in the middle of the image.
TEST(DrawDigits, InkOnPaper) {
  const Images images = DrawDigits({.train = 500, .test = 0, .seed = 1}).train;
  for (size_t i = 0; i < 500; ++i) {
    const std::string image = ImageAt(images, i);
    const auto ink = std::count_if(image.begin(), image.end(),
                                   [](char p) { return static_cast<uint8_t>(p) > 96; });
    // The shortest 1 is a line of about 14 pixels; the largest, thickest 8 covers under 300 of 784.
    EXPECT_GE(ink, 15) << i;
    EXPECT_LE(ink, 300) << i;
    int64_t row_sum = 0, column_sum = 0;
    for (size_t p = 0; p < kPixels; ++p) {
      if (static_cast<uint8_t>(image[p]) > 96) {
        row_sum += static_cast<int64_t>(p / 28);
        column_sum += static_cast<int64_t>(p % 28);
      }
    }
    // The middle is 13.5; a digit's centre of ink is within a quarter of the side from it.
    EXPECT_NEAR(static_cast<double>(row_sum) / static_cast<double>(ink), 13.5, 7) << i;
    EXPECT_NEAR(static_cast<double>(column_sum) / static_cast<double>(ink), 13.5, 7) << i;
  }
}

// The classes can be distinguished, but not by the simplest method, the nearest of ten mean images.
TEST(DrawDigits, NearestMean) {
  const ImageSet set = DrawDigits({.train = 2000, .test = 1000, .seed = 1});
  std::vector<std::array<double, kPixels>> means(10);
  for (size_t i = 0; i < 2000; ++i) {
    for (size_t p = 0; p < kPixels; ++p) {
      means[set.train.labels[i]][p] += set.train.pixels[i * kPixels + p] / 200.0;
    }
  }
  int right = 0;
  for (size_t i = 0; i < 1000; ++i) {
    std::array<double, 10> distance{};
    for (size_t c = 0; c < 10; ++c) {
      for (size_t p = 0; p < kPixels; ++p) {
        const double d = set.test.pixels[i * kPixels + p] - means[c][p];
        distance[c] += d * d;
      }
    }
    const auto nearest = std::min_element(distance.begin(), distance.end()) - distance.begin();
    right += nearest == set.test.labels[i];
  }
  // Chance is 100 of 1000. The expected number is 610, with a sampling deviation of 15.
  EXPECT_GT(right, 540);
  EXPECT_LT(right, 680);
}

}  // namespace
}  // namespace planish::lab
