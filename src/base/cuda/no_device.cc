#include "planish/error.h"
#include "src/base/cuda/device.h"

// Device functions of a build without CUDA.
namespace planish::internal::cuda {
namespace {

[[noreturn]] void Fail() { throw DeviceError("[cuda] Planish was built without CUDA", 0); }

}  // namespace

const char* Version() { return "none"; }
int Devices() { return 0; }
int MaxClusterBlocks() { return 1; }
void LimitClusterBlocks(int) {}
void Fill(const char*, void*, int, int64_t, void*) { Fail(); }
void* Allocate(int64_t) { Fail(); }
void Free(void*) {}
void CopyToDevice(void*, const void*, int64_t) { Fail(); }
void CopyToHost(void*, const void*, int64_t) { Fail(); }
void Synchronize() { Fail(); }

}  // namespace planish::internal::cuda
