#ifndef PLANISH_LAB_DATA_TEST_FILES_H_
#define PLANISH_LAB_DATA_TEST_FILES_H_

#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lab/testing/test_folder.h"

// Idx files, gzip streams and zip archives for the tests of this folder.
namespace planish::lab {

/// Returns an idx file: big-endian words, then bytes.
inline std::string Idx(const std::vector<uint32_t>& words, const std::string& bytes) {
  std::string text;
  for (const uint32_t word : words) {
    for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(word >> shift & 255);
  }
  return text + bytes;
}

/// Returns `content` as a stream of zlib with these window bits.
inline std::string Deflated(std::string content, int window_bits) {
  z_stream zlib = {};
  if (deflateInit2(&zlib, 9, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
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

/// Returns `content` as a gzip stream.
inline std::string Gzip(std::string content) {
  return Deflated(std::move(content), MAX_WBITS + 16);
}

/// Returns the low `bytes` bytes of an integer, the lowest first.
inline std::string Little(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 255);
  return text;
}

/// Member of a zip archive. Values that are not given are those of its content.
struct ZipPart {
  std::string name = {}, content = {};
  bool deflate = false;
  std::optional<uint16_t> method = {}, flags = {};
  std::optional<uint64_t> size = {}, packed_size = {};
  std::optional<uint32_t> crc = {}, offset = {};
  std::string local_name = {};  ///< in the local header, if it is another one
};

/// Returns a zip archive, with zip64 records for all sizes if `zip64`.
inline std::string Zip(const std::vector<ZipPart>& parts, bool zip64 = false) {
  std::string text, directory;
  for (const ZipPart& part : parts) {
    const std::string packed = part.deflate ? Deflated(part.content, -MAX_WBITS) : part.content;
    const auto* content = reinterpret_cast<const Bytef*>(part.content.data());
    const uint64_t size = part.size.value_or(part.content.size());
    const uint64_t packed_size = part.packed_size.value_or(packed.size());
    const uint64_t offset = part.offset.value_or(text.size());
    const auto sum =
        static_cast<uint32_t>(crc32(0, content, static_cast<uInt>(part.content.size())));
    const std::string begin = Little(part.flags.value_or(0), 2) +
                              Little(part.method.value_or(part.deflate ? 8 : 0), 2) + Little(0, 4) +
                              Little(part.crc.value_or(sum), 4);
    constexpr uint64_t kSize64 = 0xffffffff;
    const std::string sizes =
        zip64 ? Little(kSize64, 4) + Little(kSize64, 4) : Little(packed_size, 4) + Little(size, 4);
    const std::string sizes64 = zip64 ? Little(size, 8) + Little(packed_size, 8) : "";
    const std::string extra = zip64 ? Little(1, 2) + Little(16, 2) + sizes64 : "";
    const std::string extra64 = zip64 ? Little(9, 2) + Little(1, 2) + "?" + Little(1, 2) +
                                            Little(24, 2) + sizes64 + Little(offset, 8)
                                      : "";
    const std::string& local = part.local_name.empty() ? part.name : part.local_name;
    text += "PK\3\4" + Little(45, 2) + begin + sizes + Little(local.size(), 2) +
            Little(extra.size(), 2) + local + extra + packed;
    directory += "PK\1\2" + Little(45, 2) + Little(45, 2) + begin + sizes +
                 Little(part.name.size(), 2) + Little(extra64.size(), 2) + Little(0, 2) +
                 Little(0, 2) + Little(0, 2) + Little(0, 4) + Little(zip64 ? kSize64 : offset, 4) +
                 part.name + extra64;
  }
  const uint64_t at = text.size(), end = at + directory.size(), count = parts.size();
  text += directory;
  if (zip64) {
    text += "PK\6\6" + Little(44, 8) + Little(45, 2) + Little(45, 2) + Little(0, 4) + Little(0, 4) +
            Little(count, 8) + Little(count, 8) + Little(directory.size(), 8) + Little(at, 8) +
            "PK\6\7" + Little(0, 4) + Little(end, 8) + Little(1, 4);
  }
  return text + "PK\5\6" + Little(0, 4) + Little(zip64 ? 0xffff : count, 2) +
         Little(zip64 ? 0xffff : count, 2) + Little(zip64 ? 0xffffffff : directory.size(), 4) +
         Little(zip64 ? 0xffffffff : at, 4) + Little(0, 2);
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
