#include "lab/data/jpeg_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lab/data/test_files.h"
#include "lab/error.h"

#if PLANISH_HAS_JPEG
#include <jpeglib.h>
#endif

namespace planish::lab {
namespace {

using ::testing::HasSubstr;

class ReadJpegTest : public ::testing::Test {
 protected:
  ImagePixels Read(const std::string& bytes) {
    WriteFile(folder / "x.jpg", bytes);
    return ReadJpeg(folder / "x.jpg");
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

#if PLANISH_HAS_JPEG

// Returns a JPEG file that libjpeg writes at the best quality without subsampling.
std::string EncodeJpeg(J_COLOR_SPACE colors, int channels, unsigned width, unsigned height,
                       std::vector<uint8_t> pixels, bool progressive = false) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's type
  jpeg_mem_dest(&jpeg, &out, &size);
  jpeg.image_width = width;
  jpeg.image_height = height;
  jpeg.input_components = channels;
  jpeg.in_color_space = colors;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  for (int i = 0; i < jpeg.num_components; ++i) {
    jpeg.comp_info[i].h_samp_factor = jpeg.comp_info[i].v_samp_factor = 1;
  }
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < height) {
    JSAMPROW row = &pixels[jpeg.next_scanline * width * static_cast<size_t>(channels)];
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string bytes(reinterpret_cast<const char*>(out), size);
  jpeg_destroy_compress(&jpeg);
  std::free(out);
  return bytes;
}

// A smooth image, so that rounding to the quality 100 changes it by little.
std::vector<uint8_t> Ramp(size_t size) {
  std::vector<uint8_t> pixels(size);
  for (size_t i = 0; i < size; ++i) pixels[i] = static_cast<uint8_t>(40 + i % 120);
  return pixels;
}

void ExpectNear(const std::vector<uint8_t>& found, const std::vector<uint8_t>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  // Quantization by 1, and rounding of the cosine transforms and of the color transforms.
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 4) << i;
}

TEST_F(ReadJpegTest, ReadsGreyAndColor) {
  for (const bool progressive : {false, true}) {
    const ImagePixels grey = Read(EncodeJpeg(JCS_GRAYSCALE, 1, 5, 3, Ramp(15), progressive));
    EXPECT_EQ(grey.shape, (ImageShape{3, 5, 1}));
    ExpectNear(grey.pixels, Ramp(15));
    std::vector<uint8_t> red(3 * 20, 30);
    for (size_t i = 0; i < red.size(); i += 3) red[i] = 200;
    const ImagePixels color = Read(EncodeJpeg(JCS_RGB, 3, 4, 5, red, progressive));
    EXPECT_EQ(color.shape, (ImageShape{5, 4, 3}));
    ExpectNear(color.pixels, red);
  }
}

TEST_F(ReadJpegTest, ColorImageWithoutColorHasOneChannel) {
  const ImagePixels image = Read(EncodeJpeg(JCS_RGB, 3, 8, 8, std::vector<uint8_t>(192, 90)));
  EXPECT_EQ(image.shape, (ImageShape{8, 8, 1}));
  ExpectNear(image.pixels, std::vector<uint8_t>(64, 90));
}

TEST_F(ReadJpegTest, RefusesDamagedFilesAndCmyk) {
  const std::string good = EncodeJpeg(JCS_RGB, 3, 40, 40, Ramp(4800));
  EXPECT_EQ(ErrorOf(good), "no error");
  // Every truncation is found: in the headers, in the data, and before the end marker.
  for (size_t size = 4; size + 1 < good.size(); size += 1 + size / 16) {
    EXPECT_THAT(ErrorOf(good.substr(0, size)), HasSubstr("x.jpg: its JPEG data is ")) << size;
  }
  EXPECT_THAT(ErrorOf(good.substr(0, good.size() / 2)), HasSubstr("its JPEG data is truncated"));
  EXPECT_THAT(ErrorOf(EncodeJpeg(JCS_CMYK, 4, 8, 8, Ramp(256))),
              HasSubstr("x.jpg: it is in CMYK: convert it to RGB first"));
  EXPECT_THAT(ErrorOf(EncodeJpeg(JCS_GRAYSCALE, 1, 4097, 1, Ramp(4097))),
              HasSubstr("its image has 1 x 4097 pixels; sides up to 4096 are allowed"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("it is empty"));
  EXPECT_THAT(ErrorOf("\x89PNG"), HasSubstr("it is not a JPEG image"));
  EXPECT_THROW(ReadJpeg(folder / "none.jpg"), DataError);
}

#else

TEST_F(ReadJpegTest, IsRefusedWithoutLibjpeg) {
  EXPECT_THAT(ErrorOf("\xff\xd8\xff"), HasSubstr("built without libjpeg: convert it to PNG first"));
}

#endif

}  // namespace
}  // namespace planish::lab
