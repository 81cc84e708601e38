#include "lab/run/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <new>
#include <stdexcept>

namespace planish::lab {

namespace {

// zlib's states. They are freed if an exception is thrown.
struct Inflation : z_stream {
  Inflation() : z_stream() {}
  ~Inflation() { inflateEnd(this); }
};
struct Deflation : z_stream {
  Deflation() : z_stream() {}
  ~Deflation() { deflateEnd(this); }
};

Bytef* BytesOf(std::string_view text) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));  // zlib only reads it
}

}  // namespace

std::string PackGzip(std::string_view text) {
  Deflation zlib;
  if (deflateInit2(&zlib, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::bad_alloc();
  }
  std::string packed(deflateBound(&zlib, text.size()), '\0');
  zlib.next_in = BytesOf(text);
  zlib.avail_in = static_cast<uInt>(text.size());
  zlib.next_out = BytesOf(packed);
  zlib.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&zlib, Z_FINISH) != Z_STREAM_END) throw std::bad_alloc();
  packed.resize(zlib.total_out);
  return packed;
}

std::string UnpackGzip(std::string_view packed, int64_t max_bytes) {
  Inflation zlib;
  if (inflateInit2(&zlib, MAX_WBITS + 16) != Z_OK) throw std::bad_alloc();
  zlib.next_in = BytesOf(packed);
  zlib.avail_in = static_cast<uInt>(packed.size());
  std::string text;
  std::array<char, 1 << 16> piece;
  for (;;) {
    zlib.next_out = reinterpret_cast<Bytef*>(piece.data());
    zlib.avail_out = piece.size();
    const int result = inflate(&zlib, Z_NO_FLUSH);
    text.append(piece.data(), piece.size() - zlib.avail_out);
    if (std::ssize(text) > max_bytes) {
      throw std::invalid_argument(fmt::format("it unpacks to more than {} bytes", max_bytes));
    }
    if (result == Z_STREAM_END) {
      if (zlib.avail_in == 0) return text;
      inflateReset(&zlib);
    } else if (result == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (result == Z_BUF_ERROR) {
      throw std::invalid_argument("it is truncated");
    } else if (result != Z_OK) {
      throw std::invalid_argument(fmt::format("it is not a gzip file or damaged ({})",
                                              zlib.msg ? zlib.msg : "unknown error"));
    }
  }
}

}  // namespace planish::lab
