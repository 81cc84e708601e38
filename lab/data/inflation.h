#ifndef PLANISH_LAB_DATA_INFLATION_H_
#define PLANISH_LAB_DATA_INFLATION_H_

#include <zlib.h>

#include <algorithm>
#include <cstdint>

namespace planish::lab {

/// zlib's state for inflate. inflateInit2 initializes it; it is freed with the object.
struct Inflation : z_stream {
  Inflation() : z_stream() {}
  ~Inflation() { inflateEnd(this); }  // does nothing before inflateInit2
  Inflation(const Inflation&) = delete;
  Inflation& operator=(const Inflation&) = delete;
};

/// Largest factor by which deflate shrinks (zlib's technical details).
inline constexpr int64_t kMaxDeflateRatio = 1032;

/// Bytes are refused if they unpack to more than 64 MiB and than this times their packed size: text
/// shrinks by a factor of 3 to 20.
inline constexpr int64_t kMaxRatio = 200;

/// Returns the largest size to which `packed` bytes can unpack without being refused.
inline int64_t MaxUnpacked(int64_t packed) {
  return std::max(int64_t{64} << 20, kMaxRatio * packed);
}

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_INFLATION_H_
