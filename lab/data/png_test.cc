#include "lab/data/png.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <stdexcept>
#include <vector>

namespace planish::lab {
namespace {

// Returns type and data of a PNG file's chunks in alternation, and checks their checksums.
std::vector<std::string> Chunks(const std::string& png) {
  const auto word = [&](size_t at) {
    size_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(png.at(at + i));
    return value;
  };
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1A\n");
  std::vector<std::string> chunks;
  size_t at = 8;
  while (at < png.size()) {
    const size_t length = word(at);
    chunks.push_back(png.substr(at + 4, 4));
    chunks.push_back(png.substr(at + 8, length));
    EXPECT_EQ(word(at + 8 + length), crc32(0, reinterpret_cast<const Bytef*>(png.data()) + at + 4,
                                           static_cast<uInt>(length + 4)));
    at += 12 + length;
  }
  return chunks;
}

TEST(EncodePng, HoldsThePixels) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < 300 * 7; ++i) pixels.push_back(static_cast<uint8_t>(i * 37));
  const std::vector<std::string> chunks = Chunks(EncodePng(pixels, 300));
  ASSERT_EQ(chunks.size(), 6u);
  EXPECT_EQ(chunks[0], "IHDR");
  // 300 = 0x12C columns and 7 rows, 8 bits, grey.
  EXPECT_EQ(chunks[1], std::string("\0\0\x01\x2C\0\0\0\x07\x08\0\0\0\0", 13));
  EXPECT_EQ(chunks[2], "IDAT");
  std::string rows(8 * 301, '\0');
  uLongf size = rows.size();
  ASSERT_EQ(uncompress(reinterpret_cast<Bytef*>(rows.data()), &size,
                       reinterpret_cast<const Bytef*>(chunks[3].data()), chunks[3].size()),
            Z_OK);
  ASSERT_EQ(size, 7u * 301);
  for (size_t y = 0; y < 7; ++y) {
    EXPECT_EQ(rows[y * 301], '\0');
    for (size_t x = 0; x < 300; ++x) {
      ASSERT_EQ(static_cast<uint8_t>(rows[y * 301 + 1 + x]), pixels[y * 300 + x]);
    }
  }
  EXPECT_EQ(chunks[4], "IEND");
  EXPECT_EQ(chunks[5], "");
}

TEST(EncodePng, RefusesInvalidSizes) {
  const std::vector<uint8_t> pixels(6);
  EXPECT_NO_THROW(EncodePng(pixels, 3));
  EXPECT_THROW(EncodePng(pixels, 4), std::invalid_argument);
  EXPECT_THROW(EncodePng(pixels, 0), std::invalid_argument);
  EXPECT_THROW(EncodePng({}, 3), std::invalid_argument);
}

}  // namespace
}  // namespace planish::lab
