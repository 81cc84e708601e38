#include "src/base/cuda/device.h"
#include "src/base/cuda/no_cuda.h"

// Device functions of a build without CUDA.
namespace planish::internal::cuda {

const char* Version() { return "none"; }
int Devices() { return 0; }
int MaxClusterBlocks() { return 1; }
void LimitClusterBlocks(int) {}
void Fill(const char* function, void*, int, int64_t, void*) { FailWithoutCuda(function); }
void* Allocate(int64_t) { FailWithoutCuda("Allocate"); }
void Free(void*) {}
void CopyToDevice(void*, const void*, int64_t) { FailWithoutCuda("CopyToDevice"); }
void CopyToHost(void*, const void*, int64_t) { FailWithoutCuda("CopyToHost"); }
void Synchronize() { FailWithoutCuda("Synchronize"); }

}  // namespace planish::internal::cuda
