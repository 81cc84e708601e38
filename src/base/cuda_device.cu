#include <cstdlib>
#include <cstring>
#include <string>

#include "src/base/cuda.h"
#include "src/base/cuda_device.h"

namespace planish::internal::cuda {

#ifdef __CUDACC__

namespace {

void Check(const char* function, const char* what, cudaError_t error) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw Error("[" + std::string(function) + "] the device must " + what + " but has said \"" +
              cudaGetErrorString(error) + "\"");
}

}  // namespace

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
  Check("Allocate", "have memory", cudaMalloc(&data, static_cast<size_t>(bytes)));
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

int Devices() { return 1; }

void Fill(const char*, void* data, int value, int64_t bytes, void*) {
  if (data != nullptr) std::memset(data, value, static_cast<size_t>(bytes));
}

void* Allocate(int64_t bytes) {
  // As cudaMalloc's: 256 bytes. Not a byte more than asked for, so that a sanitizer sees what is
  // read beyond.
  void* data = nullptr;
  if (posix_memalign(&data, 256, static_cast<size_t>(bytes)) != 0) {
    throw Error("[Allocate] the device must have memory but has none left");
  }
  return data;
}

void Free(void* data) { std::free(data); }
void CopyToDevice(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
void CopyToHost(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
void Synchronize() {}

#endif

}  // namespace planish::internal::cuda
