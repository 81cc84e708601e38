#ifndef PLANISH_LAB_TASKS_DRAW_BINARY_IMAGES_H_
#define PLANISH_LAB_TASKS_DRAW_BINARY_IMAGES_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace planish::lab {

inline constexpr int64_t kBinaryImagePixels = 28 * 28;

/// Images of 28 x 28 pixels that are 0 or 1, with the fields of RunConfig::Data. Each split is
/// [count, 28, 28].
struct BinaryImageSet {
  std::vector<uint8_t> train;
  std::vector<uint8_t> valid;
  std::vector<uint8_t> test;
  std::string name;         ///< "binarized mnist", "binary idx images" or "drawn binary digits"
  std::string source;       ///< "files" or "embedded"
  std::string description;  ///< one sentence
  std::string sha256;       ///< of the three uncompressed idx files: train, valid, test
};

/// Reads the three files binarized_mnist_{train,valid,test}-images-idx3-ubyte, plain or gzipped
/// (with or without .gz in the name), in `folder` or its subfolder mnist_binarized. The set is
/// named "binary idx images", or "binarized mnist" if it is the fixed binarization of Salakhutdinov
/// & Murray 2008, split by Larochelle & Murray 2011. Throws DataError like LoadMnist, and for
/// pixels other than 0 and 1.
BinaryImageSet LoadBinaryMnist(const std::filesystem::path& folder);

/// Returns digits of DrawDigits, seed 1, with a 1 for every pixel of half the ink or more. `train`
/// and then `valid` images are from its training set, `test` from its test set. Throws UsageError
/// like DrawDigits.
BinaryImageSet DrawBinaryDigits(int64_t train, int64_t valid, int64_t test);

}  // namespace planish::lab

#endif  // PLANISH_LAB_TASKS_DRAW_BINARY_IMAGES_H_
