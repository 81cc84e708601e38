#ifndef PLANISH_LAB_DATA_PNG_H_
#define PLANISH_LAB_DATA_PNG_H_

#include <cstdint>
#include <span>
#include <string>

namespace planish::lab {

/// Returns a PNG file (ISO/IEC 15948) of grey pixels [height, width]: 0 is black, 255 white. Throws
/// std::invalid_argument unless `pixels` are one or more whole rows of `width` > 0.
std::string EncodePng(std::span<const uint8_t> pixels, int64_t width);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_PNG_H_
