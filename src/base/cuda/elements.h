#ifndef PLANISH_SRC_BASE_CUDA_ELEMENTS_H_
#define PLANISH_SRC_BASE_CUDA_ELEMENTS_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "src/base/cuda/kernel.h"
#include "src/base/cuda/pack.h"

// Elements of any type in kernels: reading and writing packs of them, and functions whose names
// depend on the type.
namespace planish::internal::cuda {

PLANISH_DEVICE float FusedMulAdd(float a, float b, float c) { return fmaf(a, b, c); }
PLANISH_DEVICE double FusedMulAdd(double a, double b, double c) { return fma(a, b, c); }

/// Round to the nearest integer, ties to even.
PLANISH_DEVICE float RoundToEven(float x) { return rintf(x); }
PLANISH_DEVICE double RoundToEven(double x) { return rint(x); }

PLANISH_DEVICE float SquareRoot(float x) { return sqrtf(x); }
PLANISH_DEVICE double SquareRoot(double x) { return sqrt(x); }

template <class C>
PLANISH_DEVICE C Nan() {
  return static_cast<C>(FloatOfBits(0x7fc00000));
}
PLANISH_DEVICE bool IsFinite(double value) { return value - value == 0; }

/// Converts 16 bytes to their elements.
template <class T>
PLANISH_DEVICE void FromWords(const uint32_t (&words)[4], Compute<T>* to) {
  PLANISH_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, bfloat16>) {
      to[2 * i] = FloatOfBits(words[i] << 16);
      to[2 * i + 1] = FloatOfBits(words[i] & 0xffff0000u);
    } else if constexpr (std::is_same_v<T, float16>) {
      to[2 * i] = ToCompute(float16{static_cast<uint16_t>(words[i])});
      to[2 * i + 1] = ToCompute(float16{static_cast<uint16_t>(words[i] >> 16)});
    } else if constexpr (std::is_same_v<T, float>) {
      to[i] = FloatOfBits(words[i]);
    } else if (i % 2 == 0) {
      to[i / 2] = DoubleOfWords(words[i], words[i + 1]);
    }
  }
}

/// Rounds elements to type T and packs them into 16 bytes.
template <class T>
PLANISH_DEVICE void ToWords(const Compute<T>* from, uint32_t (&words)[4]) {
  PLANISH_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 2) {
      words[i] = WordOf<T>(from[2 * i], from[2 * i + 1]);
    } else if constexpr (std::is_same_v<T, float>) {
      words[i] = BitsOf(from[i]);
    } else if (i % 2 == 0) {
      words[i] = LowWordOf(from[i / 2]);
      words[i + 1] = HighWordOf(from[i / 2]);
    }
  }
}

/// Sets element j of 16 bytes, of at least four bytes.
template <class T>
PLANISH_DEVICE void SetElement(uint32_t (&words)[4], int j, T value) {
  if constexpr (std::is_same_v<T, float>) {
    words[j] = BitsOf(value);
  } else {
    words[2 * j] = LowWordOf(value);
    words[2 * j + 1] = HighWordOf(value);
  }
}

/// Returns element j of 16 bytes.
template <class T>
PLANISH_DEVICE T ElementOf(const uint32_t (&words)[4], int j) {
  if constexpr (sizeof(T) == 2) {
    return {static_cast<uint16_t>(words[j / 2] >> 16 * (j % 2))};
  } else if constexpr (std::is_same_v<T, float>) {
    return FloatOfBits(words[j]);
  } else {
    return DoubleOfWords(words[2 * j], words[2 * j + 1]);
  }
}

/// Sets `to` to the 16 bytes at `offset` in the sequence of `first` and `second`. The offset is
/// below 16 and a multiple of the size of T.
template <class T>
PLANISH_DEVICE void Window(const uint32_t (&first)[4], const uint32_t (&second)[4], int offset,
                           uint32_t (&to)[4]) {
  uint32_t words[8];
  PLANISH_UNROLL
  for (int i = 0; i < 4; ++i) words[i] = first[i], words[4 + i] = second[i];
  const bool by_two = (offset & 8) != 0;
  PLANISH_UNROLL
  for (int i = 0; i < 6; ++i) words[i] = by_two ? words[i + 2] : words[i];
  if constexpr (sizeof(T) <= 4) {
    const bool by_one = (offset & 4) != 0;
    PLANISH_UNROLL
    for (int i = 0; i < 5; ++i) words[i] = by_one ? words[i + 1] : words[i];
  }
  PLANISH_UNROLL
  for (int i = 0; i < 4; ++i) {
    to[i] = sizeof(T) == 2 ? ShiftWords(words[i], words[i + 1], (offset & 2) * 8) : words[i];
  }
}

/// Reads N elements, a power of two. They must be aligned to their size, or to 16 bytes.
template <int N, class T, class C>
PLANISH_DEVICE void Load(const T* from, C* to) {
  if constexpr (N < kFullPack<T>) {
    const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
    PLANISH_UNROLL
    for (int j = 0; j < N; ++j) to[j] = ToCompute(pack.values[j]);
  } else {
    PLANISH_UNROLL
    for (int i = 0; i < N; i += kFullPack<T>) {
      uint32_t words[4];
      LoadWords(from + i, words);
      Compute<T> elements[kFullPack<T>];
      FromWords<T>(words, elements);
      PLANISH_UNROLL
      for (int j = 0; j < kFullPack<T>; ++j) to[i + j] = elements[j];
    }
  }
}

/// Writes N elements: one, or a full pack.
template <int N, class T, class C>
PLANISH_DEVICE void Store(const C* from, T* to) {
  if constexpr (N == 1) {
    *to = FromCompute<T>(*from);
  } else {
    static_assert(N == kFullPack<T>);
    uint32_t words[4];
    ToWords<T>(from, words);
    StoreWords(to, words);
  }
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_ELEMENTS_H_
