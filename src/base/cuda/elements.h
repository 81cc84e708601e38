#ifndef PLANISH_SRC_BASE_CUDA_ELEMENTS_H_
#define PLANISH_SRC_BASE_CUDA_ELEMENTS_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "src/base/cuda/kernel.h"
#include "src/base/cuda/pack.h"

// What kernels do with numbers of any type: read and write them by packs, and the functions whose
// names depend on the type.
namespace planish::internal::cuda {

PLANISH_DEVICE float FusedMulAdd(float a, float b, float c) { return fmaf(a, b, c); }
PLANISH_DEVICE double FusedMulAdd(double a, double b, double c) { return fma(a, b, c); }

PLANISH_DEVICE float SquareRoot(float x) { return sqrtf(x); }
PLANISH_DEVICE double SquareRoot(double x) { return sqrt(x); }

template <class C>
PLANISH_DEVICE C Nan() {
  return static_cast<C>(FloatOfBits(0x7fc00000));
}
PLANISH_DEVICE bool IsFinite(double value) { return value - value == 0; }

/// Reads N numbers: one, or a multiple of what 16 bytes hold.
template <int N, class T, class C>
PLANISH_DEVICE void Load(const T* from, C* to) {
  constexpr int kAtOnce = N < kFullPack<T> ? N : kFullPack<T>;
  PLANISH_UNROLL
  for (int i = 0; i < N; i += kAtOnce) {
    const auto pack = *reinterpret_cast<const Pack<T, kAtOnce>*>(from + i);
    PLANISH_UNROLL
    for (int j = 0; j < kAtOnce; ++j) to[i + j] = ToCompute(pack.values[j]);
  }
}

/// Writes N numbers: one, or as many as 16 bytes hold.
template <int N, class T, class C>
PLANISH_DEVICE void Store(const C* from, T* to) {
  if constexpr (N == 1) {
    *to = FromCompute<T>(*from);
  } else if constexpr (sizeof(T) == 2) {
    static_assert(N == kFullPack<T>);
    uint32_t words[4];
    PLANISH_UNROLL
    for (int i = 0; i < 4; ++i) {
      words[i] = FromCompute<T>(from[2 * i]).bits |
                 static_cast<uint32_t>(FromCompute<T>(from[2 * i + 1]).bits) << 16;
    }
    StoreWords(to, words);
  } else {
    Pack<T, N> pack;
    PLANISH_UNROLL
    for (int i = 0; i < N; ++i) pack.values[i] = from[i];
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
  }
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_ELEMENTS_H_
