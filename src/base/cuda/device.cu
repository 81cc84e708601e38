#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>

#include "src/base/cuda/device.h"
#include "src/base/cuda/kernel.h"

namespace planish::internal::cuda {
namespace {

std::atomic<int> max_cluster_blocks = kMaxClusterBlocks;

}  // namespace

void LimitClusterBlocks(int blocks) { max_cluster_blocks = blocks; }

#ifdef __CUDACC__

namespace {

void Check(const char* function, const char* what, cudaError_t error) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw DeviceError("[" + std::string(function) + "] the device could not " + what + ": " +
                        cudaGetErrorString(error),
                    error);
}

// Uses the resources of the largest possible block. Compiled for the architectures of all kernels.
PLANISH_KERNEL(kMaxThreads, 1) LargestBlock() {}

// A partition of a device can have too few multiprocessors for the largest cluster.
int QueryClusterBlocks(int device) {
  int has = 0, shared_bytes = 0, blocks = 1;
  cudaFuncAttributes compiled;
  const auto* const kernel = reinterpret_cast<const void*>(LargestBlock);
  const bool known =
      cudaDeviceGetAttribute(&has, cudaDevAttrClusterLaunch, device) == cudaSuccess && has != 0 &&
      cudaFuncGetAttributes(&compiled, kernel) == cudaSuccess && compiled.ptxVersion >= 90 &&
      cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
          cudaSuccess &&
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes) ==
          cudaSuccess;
  if (known) {
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3(kMaxClusterBlocks);
    launch.blockDim = dim3(kMaxThreads);
    launch.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    if (cudaOccupancyMaxPotentialClusterSize(&blocks, kernel, &launch) == cudaSuccess) {
      return static_cast<int>(
          std::bit_floor(static_cast<unsigned>(std::clamp(blocks, 1, kMaxClusterBlocks))));
    }
  }
  cudaGetLastError();
  return 1;
}

}  // namespace

int MaxClusterBlocks() {
  // Cached, because every call reads it and rarely uses another device than the last call.
  thread_local int known_device = -1, known_blocks = 1;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) {
    cudaGetLastError();
    return 1;
  }
  if (device != known_device) {
    known_blocks = QueryClusterBlocks(device);
    known_device = device;
  }
  return std::min<int>(known_blocks, max_cluster_blocks);
}

const char* Version() {
  static const std::string version =
      std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  return version.c_str();
}

int Devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

void Fill(const char* function, void* data, int value, int64_t bytes, void* stream) {
  if (data == nullptr || bytes == 0) return;
  Check(function, "fill memory",
        cudaMemsetAsync(data, value, static_cast<size_t>(bytes), static_cast<Stream>(stream)));
}

void* Allocate(int64_t bytes) {
  void* data = nullptr;
  const std::string what = "allocate " + std::to_string(bytes) + " bytes";
  Check("Allocate", what.c_str(), cudaMalloc(&data, static_cast<size_t>(bytes)));
  return data;
}

void Free(void* data) { cudaFree(data); }

void CopyToDevice(void* to, const void* from, int64_t bytes) {
  Check("CopyToDevice", "copy",
        cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
}

void CopyToHost(void* to, const void* from, int64_t bytes) {
  Check("CopyToHost", "copy",
        cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost));
}

void Synchronize() { Check("Synchronize", "finish its work", cudaDeviceSynchronize()); }

#else

const char* Version() { return "emulation"; }
int Devices() { return 1; }
int MaxClusterBlocks() { return max_cluster_blocks; }

void Fill(const char*, void* data, int value, int64_t bytes, void*) {
  if (data != nullptr) std::memset(data, value, static_cast<size_t>(bytes));
}

void* Allocate(int64_t bytes) {
  // Aligned to 256 bytes, like cudaMalloc. Exactly `bytes` bytes, so that a sanitizer detects reads
  // beyond the end.
  void* data = nullptr;
  if (posix_memalign(&data, 256, static_cast<size_t>(bytes)) != 0) {
    const std::string size = std::to_string(bytes);
    constexpr int kOutOfMemory = 2;  // cudaErrorMemoryAllocation
    throw DeviceError("[Allocate] the device could not allocate " + size + " bytes: out of memory",
                      kOutOfMemory);
  }
  return data;
}

void Free(void* data) { std::free(data); }
// With 0 bytes the addresses can be null.
void CopyToDevice(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}
void CopyToHost(void* to, const void* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}
void Synchronize() {}

#endif

}  // namespace planish::internal::cuda
