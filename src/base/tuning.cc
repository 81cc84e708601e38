#include "src/base/tuning.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace planish::internal {
namespace {

// What the kernel knows of one of the processor's caches, or 0: "32768K" for 32 MB.
int64_t CacheBytes(const char* index) {
  std::ifstream file(std::string("/sys/devices/system/cpu/cpu0/cache/index") + index + "/size");
  int64_t size = 0;
  char unit = 0;
  return file >> size >> unit && size > 0 ? size << (unit == 'M' ? 20 : 10) : 0;
}

// Of the last one. In a virtual machine the C library adds up the caches of processors that it
// cannot run on.
int64_t LastCacheBytes() {
  for (const char* index : {"3", "2"}) {
    if (const int64_t size = CacheBytes(index); size > 0) return size;
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

bool FirstCacheHoldsManyRows() {
  static const bool holds = CacheBytes("0") >= 48 << 10;
  return holds;
}

int64_t StreamingBytes() { return TheStreamingBytes(); }

int64_t StreamingBytesAlone() { return TheStreamingBytes() / 3 * 2; }

void SetStreamingBytes(int64_t bytes) { TheStreamingBytes() = bytes; }

}  // namespace planish::internal
