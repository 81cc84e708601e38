#ifndef PLANISH_LAB_DATA_PNG_READER_H_
#define PLANISH_LAB_DATA_PNG_READER_H_

#include <cstdint>
#include <filesystem>
#include <vector>

#include "lab/data/images.h"

namespace planish::lab {

/// Pixels of an image file.
struct ImagePixels {
  ImageShape shape;
  std::vector<uint8_t> pixels;  ///< [height, width, channels]
};

/// Reads a PNG file of any color type, depth and interlacing. Samples of fewer than 8 bits are
/// scaled to 0 .. 255, those of 16 bits are rounded to 8. Palettes are replaced by their colors.
/// Transparency, gamma and color profiles are ignored. An image without color, in which red, green
/// and blue are equal everywhere, has one channel.
/// Throws DataError naming the file if it is not PNG, is truncated or damaged, or has a side longer
/// than kMaxImageSide, and like FileContent.
ImagePixels ReadPng(const std::filesystem::path& file);

/// Throws DataError naming the file if a side is longer than kMaxImageSide.
void CheckImageSides(const std::filesystem::path& file, const ImageShape& shape);

/// Removes the second and third channel if all three are equal everywhere.
void RemoveEqualChannels(ImagePixels* image);

/// Returns `pixels` [n, 3] as grey values [n]: .299 red + .587 green + .114 blue (ITU-R BT.601).
std::vector<uint8_t> GreyOf(const std::vector<uint8_t>& pixels);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_PNG_READER_H_
