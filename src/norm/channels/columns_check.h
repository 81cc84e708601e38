#ifndef PLANISH_SRC_NORM_CHANNELS_COLUMNS_CHECK_H_
#define PLANISH_SRC_NORM_CHANNELS_COLUMNS_CHECK_H_

#include <cstdint>
#include <string>

#include "planish/types.h"
#include "src/base/check.h"

namespace planish::internal {

/// Checks that sizes are at least 0, and that arrays of T and of statistics with the product of all
/// or any two sizes are addressable. Returns the product.
template <class T>
int64_t CheckChannels(const char* function, int64_t batch, int64_t channels, int64_t spatial) {
  const auto check = [&](const char* name, int64_t size) {
    if (size < 0) Fail(function, name, "be at least 0", std::to_string(size));
  };
  check("batch", batch);
  check("channels", channels);
  check("spatial", spatial);
  const auto least_one = [](int64_t size) { return size > 0 ? size : 1; };
  const int64_t most = INT64_MAX / static_cast<int64_t>(sizeof(Compute<T>));
  if (least_one(channels) > most / least_one(batch) ||
      spatial > most / (least_one(channels) * least_one(batch))) {
    Fail(
        function, "batch * channels * spatial", "be at most " + std::to_string(most),
        std::to_string(batch) + " * " + std::to_string(channels) + " * " + std::to_string(spatial));
  }
  return batch * channels * spatial;
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_COLUMNS_CHECK_H_
