#ifndef PLANISH_LAB_DATA_TEST_FILES_H_
#define PLANISH_LAB_DATA_TEST_FILES_H_

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "lab/testing/test_folder.h"

// Idx files and gzip streams for the tests of this folder.
namespace planish::lab {

/// Returns an idx file: big-endian words, then bytes.
inline std::string Idx(const std::vector<uint32_t>& words, const std::string& bytes) {
  std::string text;
  for (const uint32_t word : words) {
    for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(word >> shift & 255);
  }
  return text + bytes;
}

/// Returns `content` as a gzip stream.
inline std::string Gzip(std::string content) {
  z_stream zlib = {};
  if (deflateInit2(&zlib, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string out(deflateBound(&zlib, content.size()), '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(content.data());
  zlib.avail_in = static_cast<uInt>(content.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&zlib, Z_FINISH);
  out.resize(zlib.total_out);
  deflateEnd(&zlib);
  if (result != Z_STREAM_END) throw std::runtime_error("deflate");
  return out;
}

/// The four uncompressed files of a small set: 3 training and 2 test images whose pixels count up.
struct SmallSet {
  static std::string Pixels(int images) {
    std::string pixels;
    for (int i = 0; i < images * 28 * 28; ++i) pixels += static_cast<char>(i % 251);
    return pixels;
  }
  std::string train_images = Idx({0x803, 3, 28, 28}, Pixels(3));
  std::string train_labels = Idx({0x801, 3}, std::string("\7\0\11", 3));
  std::string test_images = Idx({0x803, 2, 28, 28}, Pixels(2));
  std::string test_labels = Idx({0x801, 2}, std::string("\1\2", 2));

  void Write(const std::filesystem::path& folder, bool gzip = false) const {
    std::filesystem::create_directories(folder);
    const auto write = [&](const char* name, const std::string& content) {
      WriteFile(folder / (gzip ? name + std::string(".gz") : name), gzip ? Gzip(content) : content);
    };
    write("train-images-idx3-ubyte", train_images);
    write("train-labels-idx1-ubyte", train_labels);
    write("t10k-images-idx3-ubyte", test_images);
    write("t10k-labels-idx1-ubyte", test_labels);
  }
};

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_TEST_FILES_H_
