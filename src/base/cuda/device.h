#ifndef PLANISH_SRC_BASE_CUDA_DEVICE_H_
#define PLANISH_SRC_BASE_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>

// The device and its memory: of a GPU, of its emulation, or of none.
namespace planish::internal::cuda {

/// The devices there are; 0 also where there is no driver.
int Devices();

/// The most blocks that a cluster may have on the current device, a power of two; 1 where it has no
/// clusters, or where this library's kernels were compiled for devices without them.
int MostClusterBlocks();

/// For tests: MostClusterBlocks() says no more than `blocks`, a power of two.
void LimitClusterBlocks(int blocks);

/// Sets `bytes` bytes to `value`, after what is on the stream. Throws Error in `function`'s name.
void Fill(const char* function, void* data, int value, int64_t bytes, void* stream);

/// Memory of the current device, for tests and benchmarks. Throw Error where the device refuses.
void* Allocate(int64_t bytes);
void Free(void* data);
void CopyToDevice(void* to, const void* from, int64_t bytes);
void CopyToHost(void* to, const void* from, int64_t bytes);
/// Waits for all that is on the device's streams. Throws Error where something of it has failed.
void Synchronize();

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_DEVICE_H_
