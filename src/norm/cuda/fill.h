#ifndef PLANISH_SRC_NORM_CUDA_FILL_H_
#define PLANISH_SRC_NORM_CUDA_FILL_H_

#include <cstdint>
#include <initializer_list>

#include "src/base/cuda/device.h"

// Results of reductions over no elements.
namespace planish::internal::cuda {

// All bits set is a NaN; no bits set is 0.
inline constexpr int kNanByte = 0xff, kZeroByte = 0;

/// Enqueues filling the n elements of every array that is not null with `byte`.
template <class N>
void FillEach(const char* function, std::initializer_list<N*> arrays, int64_t n, int byte,
              void* stream) {
  for (N* array : arrays) {
    Fill(function, array, byte, n * static_cast<int64_t>(sizeof(N)), stream);
  }
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_FILL_H_
