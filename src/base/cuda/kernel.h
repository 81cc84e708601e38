#ifndef PLANISH_SRC_BASE_CUDA_KERNEL_H_
#define PLANISH_SRC_BASE_CUDA_KERNEL_H_

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "planish/error.h"
#include "planish/types.h"
#include "src/base/cuda/launch.h"

// The part of CUDA that kernels use, and kernel launches. nvcc compiles it with CUDA, a C++
// compiler with emulation.h.
#ifdef __CUDACC__

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#define PLANISH_DEVICE __device__ __forceinline__
#define PLANISH_KERNEL(threads, blocks) __global__ void __launch_bounds__(threads, blocks)
#define PLANISH_UNROLL _Pragma("unroll")
#define PLANISH_NO_UNROLL _Pragma("unroll 1")

namespace planish::internal::cuda {

using Stream = cudaStream_t;

PLANISH_DEVICE int ThreadIndex() { return static_cast<int>(threadIdx.x); }
PLANISH_DEVICE int BlockThreads() { return static_cast<int>(blockDim.x); }
PLANISH_DEVICE int64_t BlockIndex() { return static_cast<int64_t>(blockIdx.x); }
PLANISH_DEVICE int64_t Blocks() { return static_cast<int64_t>(gridDim.x); }
PLANISH_DEVICE int64_t BlockIndexY() { return static_cast<int64_t>(blockIdx.y); }
PLANISH_DEVICE int64_t BlocksY() { return static_cast<int64_t>(gridDim.y); }
PLANISH_DEVICE void SyncBlock() { __syncthreads(); }
/// Synchronizes all threads of a grid launched by RunCooperative, and makes their writes visible.
PLANISH_DEVICE void SyncGrid() { cooperative_groups::this_grid().sync(); }

/// Set if the code can be launched with clusters. Otherwise the functions below only let kernels
/// compile.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasClusters = false;
PLANISH_DEVICE int ClusterRank() { return 0; }
PLANISH_DEVICE int ClusterBlocks() { return 1; }
PLANISH_DEVICE void SyncCluster() {}
template <class T>
PLANISH_DEVICE T* OfBlock(T* shared, int) {
  return shared;
}
#else
inline constexpr bool kHasClusters = true;
/// Return the block's rank in its cluster, and the number of blocks there.
PLANISH_DEVICE int ClusterRank() {
  return static_cast<int>(cooperative_groups::this_cluster().block_rank());
}
PLANISH_DEVICE int ClusterBlocks() {
  return static_cast<int>(cooperative_groups::this_cluster().num_blocks());
}
/// Synchronizes all threads of the cluster and makes their writes visible.
PLANISH_DEVICE void SyncCluster() { cooperative_groups::this_cluster().sync(); }
/// Maps an address in the block's shared memory to block `rank` of the cluster. Block `rank` must
/// have started and must not return before a later SyncCluster.
template <class T>
PLANISH_DEVICE T* OfBlock(T* shared, int rank) {
  return cooperative_groups::this_cluster().map_shared_rank(shared, rank);
}
#endif

template <class T>
PLANISH_DEVICE T XorLane(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
template <class T>
PLANISH_DEVICE T FromLane(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}
template <class T>
PLANISH_DEVICE T* SharedMemory() {
  extern __shared__ __align__(16) unsigned char planish_shared[];
  return reinterpret_cast<T*>(planish_shared);
}
/// Stores 16 bytes at once to a 16-byte aligned address.
PLANISH_DEVICE void StoreWords(void* to, const uint32_t (&words)[4]) {
  *static_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}
/// Reads 16 bytes at once from a 16-byte aligned address.
PLANISH_DEVICE void LoadWords(const void* from, uint32_t (&words)[4]) {
  const uint4 pack = *static_cast<const uint4*>(from);
  words[0] = pack.x, words[1] = pack.y, words[2] = pack.z, words[3] = pack.w;
}
/// Reads an element of memory that the kernel does not write to.
PLANISH_DEVICE float LoadConstant(const float* from) { return __ldg(from); }
PLANISH_DEVICE double LoadConstant(const double* from) { return __ldg(from); }
template <class T>
PLANISH_DEVICE T LoadConstant(const T* from) {
  return {__ldg(reinterpret_cast<const unsigned short*>(from))};
}
/// Like LoadWords, from memory that the kernel does not write to: the read can be moved ahead of
/// the kernel's writes.
PLANISH_DEVICE void LoadConstantWords(const void* from, uint32_t (&words)[4]) {
  const uint4 pack = __ldg(static_cast<const uint4*>(from));
  words[0] = pack.x, words[1] = pack.y, words[2] = pack.z, words[3] = pack.w;
}
/// Prefetches into the L2 cache.
PLANISH_DEVICE void Prefetch(const void* from) { asm volatile("prefetch.L2 [%0];" ::"l"(from)); }
/// Reads four bytes without waiting, which brings their line into the L1 cache.
PLANISH_DEVICE void Touch(const void* from) {
  asm volatile("{ .reg .b32 unused; ld.b32 unused, [%0]; }" ::"l"(from));
}
/// Starts copying an element of 4 or 8 bytes to shared memory. The thread sees it after
/// WaitForCopies, other threads after a barrier that follows.
template <class T>
PLANISH_DEVICE void CopyLater(const T* from, T* to) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(__cvta_generic_to_global(from)), "n"(sizeof(T))
               : "memory");
}
PLANISH_DEVICE void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
PLANISH_DEVICE bool AnyLane(bool value) { return __any_sync(0xffffffffu, value); }
PLANISH_DEVICE float FloatOfBits(uint32_t bits) { return __uint_as_float(bits); }
PLANISH_DEVICE uint32_t BitsOf(float value) { return __float_as_uint(value); }
PLANISH_DEVICE double DoubleOfWords(uint32_t low, uint32_t high) {
  return __hiloint2double(static_cast<int>(high), static_cast<int>(low));
}
PLANISH_DEVICE uint32_t LowWordOf(double value) {
  return static_cast<uint32_t>(__double2loint(value));
}
PLANISH_DEVICE uint32_t HighWordOf(double value) {
  return static_cast<uint32_t>(__double2hiint(value));
}
/// Returns the low 32 bits of `high` and `low`, shifted right by `shift` < 32.
PLANISH_DEVICE uint32_t ShiftWords(uint32_t low, uint32_t high, int shift) {
  return __funnelshift_r(low, high, static_cast<unsigned>(shift));
}

PLANISH_DEVICE float ToCompute(bfloat16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}
PLANISH_DEVICE float ToCompute(float16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
template <class T>
PLANISH_DEVICE T FromCompute(float value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return {bits};
  } else if constexpr (std::is_same_v<T, float16>) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return {bits};
  } else {
    return static_cast<T>(value);
  }
}
/// Returns the bits of two 16-bit elements, `low` first in memory.
template <class T>
PLANISH_DEVICE uint32_t WordOf(float low, float high) {
  uint32_t word;
  if constexpr (std::is_same_v<T, bfloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
}

}  // namespace planish::internal::cuda

#else

#include "src/base/cuda/emulation.h"

#define PLANISH_DEVICE inline
#define PLANISH_KERNEL(threads, blocks) void
#define PLANISH_UNROLL
#define PLANISH_NO_UNROLL

namespace planish::internal::cuda {

using Stream = void*;

inline int ThreadIndex() { return static_cast<int>(emulation::Here().thread.x); }
inline int BlockThreads() { return static_cast<int>(emulation::Here().block_dim.x); }
inline int64_t BlockIndex() { return emulation::Here().block.x; }
inline int64_t Blocks() { return emulation::Here().grid_dim.x; }
inline int64_t BlockIndexY() { return emulation::Here().block.y; }
inline int64_t BlocksY() { return emulation::Here().grid_dim.y; }
inline void SyncBlock() { emulation::Wait(emulation::Scope::kBlock); }
inline void SyncGrid() { emulation::Wait(emulation::Scope::kGrid); }
inline constexpr bool kHasClusters = true;
inline int ClusterRank() { return emulation::ClusterRank(); }
inline int ClusterBlocks() { return emulation::ClusterBlocks(); }
inline void SyncCluster() { emulation::Wait(emulation::Scope::kCluster); }
template <class T>
T* OfBlock(T* shared, int rank) {
  return static_cast<T*>(emulation::OfBlock(shared, rank));
}
template <class T>
T XorLane(T value, int mask) {
  return emulation::FromLane(value, emulation::LaneNumber() ^ mask);
}
template <class T>
T FromLane(T value, int lane) {
  return emulation::FromLane(value, lane);
}
template <class T>
T* SharedMemory() {
  return static_cast<T*>(emulation::SharedMemory());
}
inline void StoreWords(void* to, const uint32_t (&words)[4]) { std::memcpy(to, words, 16); }
inline void LoadWords(const void* from, uint32_t (&words)[4]) { std::memcpy(words, from, 16); }
template <class T>
T LoadConstant(const T* from) {
  return *from;
}
inline void LoadConstantWords(const void* from, uint32_t (&words)[4]) { LoadWords(from, words); }
/// A real read, so that a sanitizer detects addresses beyond an array.
inline void Prefetch(const void* from) {
  static_cast<void>(*static_cast<const volatile unsigned char*>(from));
}
inline void Touch(const void* from) {
  static_cast<void>(*static_cast<const volatile uint32_t*>(from));
}
template <class T>
void CopyLater(const T* from, T* to) {
  emulation::CopyLater(from, to, sizeof(T));
}
inline void WaitForCopies() { emulation::WaitForCopies(); }
inline bool AnyLane(bool value) {
  for (int mask = 1; mask < 32; mask *= 2) value |= XorLane(value, mask);
  return value;
}
inline float FloatOfBits(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }
inline double DoubleOfWords(uint32_t low, uint32_t high) {
  return std::bit_cast<double>(static_cast<uint64_t>(high) << 32 | low);
}
inline uint32_t LowWordOf(double value) {
  return static_cast<uint32_t>(std::bit_cast<uint64_t>(value));
}
inline uint32_t HighWordOf(double value) {
  return static_cast<uint32_t>(std::bit_cast<uint64_t>(value) >> 32);
}
inline uint32_t ShiftWords(uint32_t low, uint32_t high, int shift) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> shift);
}

inline float ToCompute(bfloat16 value) { return ToFloat(value); }
inline float ToCompute(float16 value) { return ToFloat(value); }
template <class T>
T FromCompute(float value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return ToBfloat16(value);
  } else if constexpr (std::is_same_v<T, float16>) {
    return ToFloat16(value);
  } else {
    return static_cast<T>(value);
  }
}
template <class T>
uint32_t WordOf(float low, float high) {
  return FromCompute<T>(low).bits | static_cast<uint32_t>(FromCompute<T>(high).bits) << 16;
}

}  // namespace planish::internal::cuda

#endif

namespace planish::internal::cuda {

PLANISH_DEVICE float ToCompute(float value) { return value; }
PLANISH_DEVICE double ToCompute(double value) { return value; }
template <class T>
PLANISH_DEVICE T FromCompute(double value) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
  return FromCompute<T>(static_cast<float>(value));
}

/// N elements read or written at once.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};

/// Returns how many blocks of a launch are resident on the current device at the same time, a few
/// in the emulation. 0: not known.
inline int64_t ResidentBlocks(const void* kernel, const Launch& launch) {
#ifdef __CUDACC__
  int device = 0, processors = 0, blocks = 0;
  const bool known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess &&
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(
          &blocks, kernel, launch.threads, static_cast<size_t>(launch.shared_bytes)) == cudaSuccess;
  if (!known) cudaGetLastError();
  return known ? static_cast<int64_t>(processors) * blocks : 0;
#else
  static_cast<void>(kernel), static_cast<void>(launch);
  return 3;
#endif
}

/// Returns the number of blocks of a launch.
template <class... Parameters>
int64_t BlocksOf(void (*kernel)(Parameters...), const Launch& launch) {
  const int64_t resident =
      launch.resident ? ResidentBlocks(reinterpret_cast<const void*>(kernel), launch) : 0;
  return resident > 0 && resident < launch.blocks ? resident : launch.blocks;
}

#ifdef __CUDACC__
/// Throws a DeviceError, and clears it in the runtime, if a launch failed.
inline void CheckLaunch(const char* function, cudaError_t error) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw DeviceError("[" + std::string(function) +
                        "] the kernel could not be launched: " + cudaGetErrorString(error),
                    error);
}
#endif

/// Enqueues `kernel` on the stream. Throws DeviceError if the launch fails.
template <class... Parameters>
void Run(const char* function, void (*kernel)(Parameters...), const Launch& launch, void* stream,
         Parameters... arguments) {
#ifdef __CUDACC__
  void* pointers[] = {&arguments...};
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(BlocksOf(kernel, launch)), static_cast<unsigned>(launch.blocks_y));
  config.blockDim = dim3(static_cast<unsigned>(launch.threads));
  config.dynamicSmemBytes = static_cast<size_t>(launch.shared_bytes);
  config.stream = static_cast<Stream>(stream);
  cudaLaunchAttribute cluster = {};
  if (launch.cluster > 1) {
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(launch.cluster);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  const cudaError_t error =
      cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers);
  CheckLaunch(function, error);
#else
  static_cast<void>(function), static_cast<void>(stream);
  emulation::RunGrid(
      {static_cast<unsigned>(BlocksOf(kernel, launch)), static_cast<unsigned>(launch.blocks_y), 1},
      static_cast<unsigned>(launch.threads), static_cast<size_t>(launch.shared_bytes), false,
      [=] { kernel(arguments...); }, static_cast<unsigned>(launch.cluster));
#endif
}

/// Limits of a cooperative grid on the current device.
struct GridLimits {
  int64_t blocks = 0;        ///< blocks, each using more than half of the shared memory
  int64_t shared_bytes = 0;  ///< of a block
};
inline GridLimits CooperativeLimits() {
#ifdef __CUDACC__
  int device = 0, cooperative = 0, blocks = 0, shared_bytes = 0;
  const bool known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) ==
          cudaSuccess;
  if (!known) cudaGetLastError();
  if (!known || cooperative == 0) return {};
  return {blocks, shared_bytes};
#else
  return {.blocks = 4, .shared_bytes = int64_t{227} << 10};
#endif
}

/// Like Run, for a cooperative grid, with shared memory up to CooperativeLimits.
template <class... Parameters>
void RunCooperative(const char* function, void (*kernel)(Parameters...), const Launch& launch,
                    void* stream, Parameters... arguments) {
#ifdef __CUDACC__
  void* pointers[] = {&arguments...};
  const void* const entry = reinterpret_cast<const void*>(kernel);
  cudaError_t error = cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(launch.shared_bytes));
  if (error == cudaSuccess) {
    error = cudaLaunchCooperativeKernel(
        entry, dim3(static_cast<unsigned>(launch.blocks), static_cast<unsigned>(launch.blocks_y)),
        dim3(static_cast<unsigned>(launch.threads)), pointers,
        static_cast<size_t>(launch.shared_bytes), static_cast<Stream>(stream));
  }
  CheckLaunch(function, error);
#else
  static_cast<void>(function), static_cast<void>(stream);
  emulation::RunGrid(
      {static_cast<unsigned>(launch.blocks), static_cast<unsigned>(launch.blocks_y), 1},
      static_cast<unsigned>(launch.threads), static_cast<size_t>(launch.shared_bytes), true,
      [=] { kernel(arguments...); });
#endif
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_KERNEL_H_
