#include "lab/data/png_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <stdexcept>
#include <string>

#include "lab/data/png.h"
#include "lab/data/test_files.h"
#include "lab/error.h"

namespace planish::lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Image that libpng writes.
struct Kind {
  int depth = 8;
  int color_type = PNG_COLOR_TYPE_GRAY;
  bool interlaced = false;
  std::vector<png_color> palette = {};
  std::vector<png_byte> transparency = {};  // of the palette
};

// Returns a PNG file with `samples` [height, width, channels] of `kind.depth` bits.
std::string Encode(const Kind& kind, size_t width, size_t height,
                   const std::vector<uint16_t>& samples) {
  std::string out;
  png_structp png = png_create_write_struct(
      PNG_LIBPNG_VER_STRING, nullptr,
      [](png_structp, png_const_charp message) { throw std::runtime_error(message); }, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp p, png_bytep bytes, size_t count) {
        static_cast<std::string*>(png_get_io_ptr(p))
            ->append(reinterpret_cast<const char*>(bytes), count);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
               kind.depth, kind.color_type,
               kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!kind.palette.empty()) {
    png_set_PLTE(png, info, kind.palette.data(), static_cast<int>(kind.palette.size()));
  }
  if (!kind.transparency.empty()) {
    png_set_tRNS(png, info, kind.transparency.data(), static_cast<int>(kind.transparency.size()),
                 nullptr);
  }
  png_write_info(png, info);
  if (kind.depth < 8) png_set_packing(png);
  const size_t per_row = samples.size() / height;
  std::vector<std::vector<png_byte>> rows(height);
  std::vector<png_bytep> pointers;
  for (size_t y = 0; y < height; ++y) {
    for (size_t i = 0; i < per_row; ++i) {
      const uint16_t sample = samples[y * per_row + i];
      if (kind.depth == 16) rows[y].push_back(static_cast<png_byte>(sample >> 8));
      rows[y].push_back(static_cast<png_byte>(sample & 255));
    }
    pointers.push_back(rows[y].data());
  }
  png_write_image(png, pointers.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return out;
}

class ReadPngTest : public ::testing::Test {
 protected:
  ImagePixels Read(const std::string& bytes) {
    WriteFile(folder / "a.png", bytes);
    return ReadPng(folder / "a.png");
  }
  std::string ErrorOf(const std::string& bytes) {
    try {
      Read(bytes);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  }
  TestFolder folder;
};

std::vector<uint16_t> Ramp(size_t count, int depth) {
  std::vector<uint16_t> samples;
  for (size_t i = 0; i < count; ++i) {
    samples.push_back(static_cast<uint16_t>((i * 40503u >> 3) & ((1u << depth) - 1)));
  }
  return samples;
}

// Covers each depth of grey, with and without interlacing. Sizes that are no multiples of 8 give
// partial bytes and empty passes.
TEST_F(ReadPngTest, ScalesGreySamplesOfEveryDepth) {
  for (const int depth : {1, 2, 4, 8, 16}) {
    for (const bool interlaced : {false, true}) {
      for (const auto& [width, height] : {std::pair<size_t, size_t>{1, 1}, {3, 2}, {13, 9}}) {
        const std::vector<uint16_t> samples = Ramp(width * height, depth);
        const ImagePixels image =
            Read(Encode({.depth = depth, .interlaced = interlaced}, width, height, samples));
        EXPECT_EQ(image.shape,
                  (ImageShape{static_cast<int64_t>(height), static_cast<int64_t>(width), 1}));
        ASSERT_EQ(image.pixels.size(), samples.size());
        for (size_t i = 0; i < samples.size(); ++i) {
          const double exact = samples[i] * 255.0 / ((1 << depth) - 1);
          EXPECT_EQ(image.pixels[i], std::lround(exact)) << depth << " " << interlaced << " " << i;
        }
      }
    }
  }
}

TEST_F(ReadPngTest, KeepsColors) {
  for (const int depth : {8, 16}) {
    const std::vector<uint16_t> samples = Ramp(5 * 3 * 3, depth);
    const ImagePixels image =
        Read(Encode({.depth = depth, .color_type = PNG_COLOR_TYPE_RGB}, 5, 3, samples));
    EXPECT_EQ(image.shape, (ImageShape{3, 5, 3}));
    ASSERT_EQ(image.pixels.size(), samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(image.pixels[i], std::lround(samples[i] * 255.0 / ((1 << depth) - 1))) << i;
    }
  }
}

TEST_F(ReadPngTest, ReplacesPalettes) {
  const Kind kind = {.depth = 2,
                     .color_type = PNG_COLOR_TYPE_PALETTE,
                     .palette = {{10, 20, 30}, {1, 2, 3}, {255, 0, 128}},
                     .transparency = {0, 128}};
  const ImagePixels image = Read(Encode(kind, 3, 1, {2, 0, 1}));
  EXPECT_EQ(image.shape, (ImageShape{1, 3, 3}));
  EXPECT_THAT(image.pixels, ElementsAre(255, 0, 128, 10, 20, 30, 1, 2, 3));
}

TEST_F(ReadPngTest, IgnoresTransparency) {
  EXPECT_THAT(
      Read(Encode({.color_type = PNG_COLOR_TYPE_RGBA}, 2, 1, {1, 2, 3, 0, 4, 5, 6, 128})).pixels,
      ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(Read(Encode({.color_type = PNG_COLOR_TYPE_GRAY_ALPHA}, 2, 1, {7, 0, 8, 255})).pixels,
              ElementsAre(7, 8));
}

TEST_F(ReadPngTest, ReadsColorImagesWithoutColorAsGrey) {
  const ImagePixels image =
      Read(Encode({.color_type = PNG_COLOR_TYPE_RGB}, 2, 1, {7, 7, 7, 9, 9, 9}));
  EXPECT_EQ(image.shape, (ImageShape{1, 2, 1}));
  EXPECT_THAT(image.pixels, ElementsAre(7, 9));
}

TEST_F(ReadPngTest, ReadsWhatTheLabWritesAndGzip) {
  const std::vector<uint8_t> pixels = {0, 1, 2, 253, 254, 255};
  EXPECT_EQ(Read(EncodePng(pixels, 3)).pixels, pixels);
  EXPECT_EQ(Read(Gzip(EncodePng(pixels, 3))).pixels, pixels);
}

TEST_F(ReadPngTest, RefusesTruncatedFilesAtEveryByte) {
  const std::string whole =
      Encode({.color_type = PNG_COLOR_TYPE_RGB, .interlaced = true}, 5, 4, Ramp(60, 8));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(ErrorOf(whole.substr(0, size)), HasSubstr("cannot read ")) << size;
  }
  EXPECT_THAT(ErrorOf(whole.substr(0, whole.size() - 20)),
              HasSubstr("a.png: its PNG data is truncated"));
}

// Damage must give an error or an image, not a crash.
TEST_F(ReadPngTest, SurvivesDamagedBytes) {
  const std::string whole =
      Encode({.depth = 16, .color_type = PNG_COLOR_TYPE_RGBA}, 4, 4, Ramp(64, 16));
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    const std::string error = ErrorOf(damaged);
    EXPECT_TRUE(error == "no error" || error.starts_with("cannot read ")) << i << error;
  }
  std::string damaged = whole;
  damaged[whole.size() / 2] ^= 1;
  EXPECT_THAT(ErrorOf(damaged), HasSubstr("its PNG data is damaged"));
}

TEST_F(ReadPngTest, RefusesOtherFiles) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("a.png: it is empty"));
  EXPECT_THAT(ErrorOf("\xff\xd8\xff\xe0 JFIF"),
              HasSubstr("a.png: it is a JPEG image, not PNG: convert it first"));
  EXPECT_THAT(ErrorOf("GIF89a"), HasSubstr("a GIF image"));
  EXPECT_THAT(ErrorOf("some text"), HasSubstr("it is not a PNG image"));
  EXPECT_THAT(ErrorOf("PK\3\4zip"), HasSubstr("it is a zip archive"));
}

TEST_F(ReadPngTest, RefusesLongSides) {
  const std::vector<uint8_t> pixels(kMaxImageSide + 1);
  EXPECT_THAT(ErrorOf(EncodePng(pixels, kMaxImageSide + 1)),
              HasSubstr("its image has 1 x 4097 pixels; sides up to 4096 are allowed"));
  EXPECT_THAT(ErrorOf(EncodePng(pixels, 1)), HasSubstr("4097 x 1 pixels"));
  EXPECT_EQ(Read(EncodePng({pixels.begin(), pixels.end() - 1}, 1)).shape.height, kMaxImageSide);
}

TEST(GreyOf, WeighsColors) {
  EXPECT_THAT(GreyOf({255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255}),
              ElementsAre(76, 150, 29, 255));  // .299, .587 and .114 of 255
}

}  // namespace
}  // namespace planish::lab
