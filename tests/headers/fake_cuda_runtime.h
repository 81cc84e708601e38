#ifndef PLANISH_TESTS_HEADERS_FAKE_CUDA_RUNTIME_H_
#define PLANISH_TESTS_HEADERS_FAKE_CUDA_RUNTIME_H_

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

// The part of CUDA's runtime that the examples use, for the emulation of a GPU, where device memory
// is memory of the host. Frees it when the program ends.

enum CudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };

inline void cudaMalloc(void** memory, size_t bytes) {
  static std::vector<std::unique_ptr<void, decltype(&std::free)>> all;
  *memory = bytes == 0 ? nullptr : std::aligned_alloc(16, (bytes + 15) / 16 * 16);
  if (*memory) all.emplace_back(*memory, &std::free);
}

inline void cudaMemcpy(void* to, const void* from, size_t bytes, CudaMemcpyKind /*kind*/) {
  std::memcpy(to, from, bytes);
}

#endif  // PLANISH_TESTS_HEADERS_FAKE_CUDA_RUNTIME_H_
