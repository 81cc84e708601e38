#ifndef PLANISH_LAB_DATA_IMAGES_H_
#define PLANISH_LAB_DATA_IMAGES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace planish::lab {

/// Grey images, each with a class.
struct Images {
  int64_t count = 0;
  int64_t height = 0;  ///< rows of pixels
  int64_t width = 0;   ///< columns of pixels
  std::vector<uint8_t> pixels =
      {};  ///< [count, height, width]: 0 is black (paper), 255 white (ink)
  std::vector<uint8_t> labels = {};  ///< [count]
};

/// A training and a test set, with what RunConfig::Data records of them.
struct ImageSet {
  Images train;
  Images test;
  std::string name;         ///< "mnist", "idx images" or "drawn digits"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence for people
  std::string sha256;       ///< HashImages(train, test)
};

/// SHA-256, in lower-case hexadecimal, of the four uncompressed idx files that hold these images,
/// one after the other: training images, training labels, test images, test labels.
std::string HashImages(const Images& train, const Images& test);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_IMAGES_H_
