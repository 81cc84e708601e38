#ifndef PLANISH_LAB_RUN_GZIP_H_
#define PLANISH_LAB_RUN_GZIP_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace planish::lab {

/// Returns `text` as a gzip member without a time or a name: equal texts give equal bytes.
std::string PackGzip(std::string_view text);

/// Returns the content of consecutive gzip members. Throws std::invalid_argument with the reason,
/// such as "it is truncated", if they are damaged or unpack to more than `max_bytes`.
std::string UnpackGzip(std::string_view packed, int64_t max_bytes);

}  // namespace planish::lab

#endif  // PLANISH_LAB_RUN_GZIP_H_
