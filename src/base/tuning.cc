#include "src/base/tuning.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace planish::internal {
namespace {

// Returns the size of a cache as sysfs reports it ("32768K" is 32 MB), or 0.
int64_t CacheBytes(const char* index) {
  std::ifstream file(std::string("/sys/devices/system/cpu/cpu0/cache/index") + index + "/size");
  int64_t size = 0;
  char unit = 0;
  return file >> size >> unit && size > 0 ? size << (unit == 'M' ? 20 : 10) : 0;
}

// Returns the size of the last-level cache. Prefers sysfs: in a virtual machine sysconf adds the
// caches of processors that the machine cannot run on.
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

StreamingLimits& TheStreaming() {
  static StreamingLimits limits = [] {
    int64_t last = LastCacheBytes();
    if (last == 0) last = int64_t{32} << 20;  // if the system does not report it
    const int64_t most = LastCacheIsFar() ? 8 * SecondCacheBytes() : last;
    return StreamingLimits{.call = last / 4 * 3, .thread = std::min(last / 2, most)};
  }();
  return limits;
}

int64_t& TheOwnWeightBytes() {
  static int64_t bytes = LastCacheIsFar() ? SecondCacheBytes() / 4 * 3 : INT64_MAX;
  return bytes;
}

}  // namespace

bool FirstCacheHoldsManyRows() {
  static const bool holds = CacheBytes("0") >= 48 << 10;
  return holds;
}

bool LastCacheIsFar() {
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
  // Processors with AVX-512 and a large L2 cache have the mesh.
  static const bool far = __builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f") &&
                          SecondCacheBytes() >= 1 << 20;
  return far;
#else
  return false;
#endif
}

int64_t SecondCacheBytes() {
  static const int64_t bytes = CacheBytes("2") > 0 ? CacheBytes("2") : int64_t{1} << 20;
  return bytes;
}

int64_t TileBytes() { return LastCacheIsFar() ? 2 * kTileBytes : kTileBytes; }

int64_t ManyRows() { return LastCacheIsFar() ? 512 : 2048; }

int64_t RunTileBytes() { return LastCacheIsFar() ? SecondCacheBytes() / 4 : kTileBytes; }

int64_t OwnWeightBytes() { return TheOwnWeightBytes(); }

void SetOwnWeightBytes(int64_t bytes) { TheOwnWeightBytes() = bytes; }

StreamingLimits Streaming() { return TheStreaming(); }

void SetStreaming(const StreamingLimits& limits) { TheStreaming() = limits; }

}  // namespace planish::internal
