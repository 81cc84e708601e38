#ifndef PLANISH_LAB_TASKS_DRAW_BINARY_IMAGES_H_
#define PLANISH_LAB_TASKS_DRAW_BINARY_IMAGES_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace planish::lab {

inline constexpr int64_t kBinaryImagePixels = 28 * 28;

/// Images of 28 x 28 pixels that are 0 or 1, with what RunConfig::Data records of them. Each split
/// is [count, 28, 28].
struct BinaryImageSet {
  std::vector<uint8_t> train;
  std::vector<uint8_t> valid;
  std::vector<uint8_t> test;
  std::string name;         ///< "binarized mnist", "binary idx images" or "drawn binary digits"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence for people
  std::string sha256;       ///< of the three uncompressed idx files: train, valid, test
};

/// The three files binarized_mnist_{train,valid,test}-images-idx3-ubyte, each plain or gzipped
/// (with or without .gz in its name), in `folder` or in mnist_binarized below it. The set is named
/// "binarized mnist" when its content is MNIST's fixed binarisation (Salakhutdinov & Murray 2008;
/// the split of Larochelle & Murray 2011), else "binary idx images". Throws DataError as LoadMnist
/// does, and for pixels other than 0 and 1.
BinaryImageSet LoadBinaryMnist(const std::filesystem::path& folder);

/// Digits of DrawDigits, seed 1, with a 1 for every pixel of half the ink or more: the first
/// `train` of its training images, the `valid` after them, and `test` of its test images. Throws
/// UsageError as DrawDigits does.
BinaryImageSet DrawBinaryDigits(int64_t train, int64_t valid, int64_t test);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_DRAW_BINARY_IMAGES_H_
