#ifndef PLANISH_LAB_DATA_IMAGES_H_
#define PLANISH_LAB_DATA_IMAGES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace planish::lab {

/// Maximum height and width of images that are read from files.
inline constexpr int64_t kMaxImageSide = 4096;

/// Size of an image.
struct ImageShape {
  int64_t height = 28;   ///< rows of pixels
  int64_t width = 28;    ///< columns of pixels
  int64_t channels = 1;  ///< 1 (grey) or 3 (red, green, blue)

  int64_t values() const { return height * width * channels; }
  bool operator==(const ImageShape&) const = default;
};

/// Grey images, each with a class.
struct Images {
  int64_t count = 0;
  int64_t height = 0;  ///< rows of pixels
  int64_t width = 0;   ///< columns of pixels
  std::vector<uint8_t> pixels =
      {};  ///< [count, height, width]: 0 is black (paper), 255 white (ink)
  std::vector<uint8_t> labels = {};  ///< [count]
};

/// Training and test set, with the fields of RunConfig::Data.
struct ImageSet {
  Images train;
  Images test;
  std::string name;         ///< "mnist", "idx images" or "drawn digits"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence
  std::string sha256;       ///< HashImages(train, test)
};

/// Returns the SHA-256, in lower-case hexadecimal, of the concatenated four uncompressed idx files
/// with these images: training images, training labels, test images, test labels.
std::string HashImages(const Images& train, const Images& test);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_IMAGES_H_
