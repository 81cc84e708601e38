#include "src/base/tuning.h"

#include <unistd.h>

#include <algorithm>

namespace planish::internal {

namespace {

int64_t& TheStreamingBytes() {
  static int64_t bytes = [] {
    int64_t last = int64_t{32} << 20;  // where the system does not say
#ifdef _SC_LEVEL3_CACHE_SIZE
    const int64_t l2 = sysconf(_SC_LEVEL2_CACHE_SIZE), l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (std::max(l2, l3) > 0) last = std::max(l2, l3);
#endif
    return last;
  }();
  return bytes;
}

}  // namespace

int64_t StreamingBytes() { return TheStreamingBytes(); }

void SetStreamingBytes(int64_t bytes) { TheStreamingBytes() = bytes; }

}  // namespace planish::internal
