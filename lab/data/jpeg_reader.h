#ifndef PLANISH_LAB_DATA_JPEG_READER_H_
#define PLANISH_LAB_DATA_JPEG_READER_H_

#include <filesystem>

#include "lab/data/png_reader.h"

namespace planish::lab {

/// Reads a JPEG file, grey or in color, baseline or progressive. The profile and the orientation of
/// cameras are ignored. An image without color has one channel, as in ReadPng. libjpeg versions can
/// differ by one level in a pixel.
/// Throws DataError naming the file if it is not JPEG, is truncated or damaged, is in CMYK, or has
/// a side longer than kMaxImageSide; also if planish was built without libjpeg; and like
/// FileContent.
ImagePixels ReadJpeg(const std::filesystem::path& file);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_JPEG_READER_H_
