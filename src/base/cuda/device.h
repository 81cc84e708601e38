#ifndef PLANISH_SRC_BASE_CUDA_DEVICE_H_
#define PLANISH_SRC_BASE_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>

// Device and device memory of a GPU, of the emulation, or of a build without CUDA.
namespace planish::internal::cuda {

/// Returns the version of CUDA that the kernels are compiled with, such as "13.0"; "emulation"
/// in the emulation, "none" in a build without CUDA.
const char* Version();

/// Returns the number of devices; 0 without a driver.
int Devices();

/// Returns the largest cluster size of the current device, a power of two. Returns 1 if the device
/// has no clusters, or the kernels were compiled for devices without them.
int MaxClusterBlocks();

/// Limits MaxClusterBlocks() to `blocks`, a power of two, for tests.
void LimitClusterBlocks(int blocks);

/// Enqueues filling `bytes` bytes with `value` on the stream. Throws DeviceError.
void Fill(const char* function, void* data, int value, int64_t bytes, void* stream);

/// Functions for tests and benchmarks on the current device. Throw DeviceError.
void* Allocate(int64_t bytes);
void Free(void* data);
void CopyToDevice(void* to, const void* from, int64_t bytes);
void CopyToHost(void* to, const void* from, int64_t bytes);
/// Waits for all streams of the device. Throws DeviceError if earlier work failed.
void Synchronize();

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_DEVICE_H_
