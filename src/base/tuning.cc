#include "src/base/tuning.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace planish::internal {
namespace {

// What the kernel knows of the processor's last cache, or 0: "32768K" for 32 MB. In a virtual
// machine the C library adds up the caches of processors that it cannot run on.
int64_t LastCacheBytes() {
  for (const char* index : {"3", "2"}) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::string(index) + "/size");
    int64_t size = 0;
    char unit = 0;
    if (file >> size >> unit && size > 0) return size << (unit == 'M' ? 20 : 10);
  }
  int64_t size = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
  size = std::max<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE));
#endif
  return size;
}

int64_t& TheStreamingBytes() {
  static int64_t bytes = [] {
    const int64_t last = LastCacheBytes();
    return (last > 0 ? last : int64_t{32} << 20) / 4 * 3;  // 32 MB where the system does not say
  }();
  return bytes;
}

}  // namespace

int64_t StreamingBytes() { return TheStreamingBytes(); }

void SetStreamingBytes(int64_t bytes) { TheStreamingBytes() = bytes; }

}  // namespace planish::internal
