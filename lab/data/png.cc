#include "lab/data/png.h"

#include <zlib.h>

#include <stdexcept>
#include <string_view>
#include <vector>

namespace planish::lab {

namespace {

std::string BigEndian(size_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

// Returns a chunk: length, type and data, and a checksum of type and data (section 5.3 of the
// standard).
std::string Chunk(std::string_view type, const std::string& data) {
  const std::string summed = std::string(type) + data;
  const uLong sum = crc32_z(0, reinterpret_cast<const Bytef*>(summed.data()), summed.size());
  return BigEndian(data.size()) + summed + BigEndian(sum);
}

std::string Deflated(const std::vector<uint8_t>& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string packed(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(packed.data()), &size, bytes.data(), bytes.size(),
                Z_BEST_COMPRESSION) != Z_OK) {
    throw std::runtime_error("[EncodePng] zlib cannot compress the pixels");
  }
  packed.resize(size);
  return packed;
}

}  // namespace

std::string EncodePng(std::span<const uint8_t> pixels, int64_t width) {
  if (width < 1 || pixels.empty() || std::ssize(pixels) % width != 0) {
    throw std::invalid_argument("[EncodePng] pixels must be whole rows");
  }
  const auto columns = static_cast<size_t>(width);
  const size_t height = pixels.size() / columns;
  std::vector<uint8_t> rows;
  rows.reserve(pixels.size() + height);
  for (size_t y = 0; y < height; ++y) {
    rows.push_back(0);  // the row's filter: none
    const auto row = pixels.subspan(y * columns, columns);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  // 8 bits, grey; deflate, standard filters and no interlacing.
  const std::string kind("\x08\0\0\0\0", 5);
  return "\x89PNG\r\n\x1A\n" + Chunk("IHDR", BigEndian(columns) + BigEndian(height) + kind) +
         Chunk("IDAT", Deflated(rows)) + Chunk("IEND", "");
}

}  // namespace planish::lab
