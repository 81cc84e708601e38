#ifndef PLANISH_SRC_BASE_CUDA_MATH_H_
#define PLANISH_SRC_BASE_CUDA_MATH_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "src/base/cuda/elements.h"

// Sigmoid, tanh and softplus on a GPU, with the arithmetic of src/base/simd/math-inl.h. Results
// have the same bits on the CPU, on every device and in the emulation.
namespace planish::internal::cuda {

/// exp(x) as 2^n * (1 + rest) with an integer n.
template <class C>
struct SplitExp {
  C n, rest;
};

PLANISH_DEVICE SplitExp<float> ExpOf(float x) {
  const float round = 0x1.8p23f;
  const float n = fmaf(x, 1.4426950408889634f, round) - round;
  const float r = fmaf(-n, -0x1.bd0106p-13f, fmaf(-n, 0x1.63p-1f, x));
  float sum = 0x1.6d112cp-10f;
  sum = fmaf(sum, r, 0x1.120b9p-7f);
  sum = fmaf(sum, r, 0x1.55551ap-5f);
  sum = fmaf(sum, r, 0x1.5554dcp-3f);
  sum = fmaf(sum, r, 0x1p-1f);
  return {n, fmaf(r * r, sum, r)};
}
PLANISH_DEVICE SplitExp<double> ExpOf(double x) {
  const double round = 0x1.8p52;
  const double n = fma(x, 1.4426950408889634, round) - round;
  const double r = fma(-n, 0x1.a39ef35793c76p-33, fma(-n, 0x1.62e42feep-1, x));
  double sum = 0x1.af38c67fbb53ep-26;
  sum = fma(sum, r, 0x1.28919ccaf9211p-22);
  sum = fma(sum, r, 0x1.71de0da24602dp-19);
  sum = fma(sum, r, 0x1.a019b8f9792eep-16);
  sum = fma(sum, r, 0x1.a01a01a7c73cp-13);
  sum = fma(sum, r, 0x1.6c16c17890eb4p-10);
  sum = fma(sum, r, 0x1.11111111109afp-7);
  sum = fma(sum, r, 0x1.5555555553d56p-5);
  sum = fma(sum, r, 0x1.5555555555556p-3);
  sum = fma(sum, r, 0x1.0000000000001p-1);
  return {n, fma(r * r, sum, r)};
}

/// Returns 2^n for integers n with a normal result, and infinity for the first n above.
PLANISH_DEVICE float PowerOfTwo(float n) {
  return FloatOfBits((BitsOf(n + 0x1.8p23f) << 23) + 0x3f800000u);
}
PLANISH_DEVICE double PowerOfTwo(double n) {
  const double shifted = n + 0x1.8p52;
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof(bits));
  bits = (bits << 52) + 0x3ff0000000000000u;
  double power;
  memcpy(&power, &bits, sizeof(power));
  return power;
}

/// Returns 1 / (1 + exp(-x)) with an error of at most 4 ulp. The limits are 0 and 1; NaN stays NaN.
template <class C>
PLANISH_DEVICE C Sigmoid(C x) {
  constexpr bool kFloat = std::is_same_v<C, float>;
  const C max_x = kFloat ? C(87) : C(708), min_x = kFloat ? C(-88.5) : C(-709.6);
  const C within = x > max_x ? max_x : x < min_x ? min_x : x;
  const SplitExp<C> split = ExpOf(-within);
  return C{1} / FusedMulAdd(C{1} + split.rest, PowerOfTwo(split.n), C{1});
}

/// Returns tanh(x) with an error of at most 4 ulp. The limits are -1 and 1; tanh(-0) is -0; NaN
/// stays NaN.
template <class C>
PLANISH_DEVICE C Tanh(C x) {
  const C below = (x < 0 ? -x : x) * C{-2};
  const SplitExp<C> split = ExpOf(below < -40 ? C{-40} : below);
  const C power = PowerOfTwo(split.n);
  const C m = FusedMulAdd(split.rest, power, power - C{1});
  const C y = m / (m + C{2});
  if constexpr (std::is_same_v<C, float>) {
    return x != x ? x : copysignf(y, x);
  } else {
    return x != x ? x : copysign(y, x);
  }
}

/// Returns log(1 + exp(x)) with an error of at most 4 ulp. NaN stays NaN.
template <class C>
PLANISH_DEVICE C Softplus(C x) {
  constexpr bool kFloat = std::is_same_v<C, float>;
  constexpr int kTerms = kFloat ? 8 : 16;
  const C min = kFloat ? C(-105) : C(-747), round = kFloat ? C(0x1.8p23) : C(0x1.8p52);
  const C below = x < 0 ? x : -x;
  const SplitExp<C> split = ExpOf(below < min ? min : below);
  // 2^n is multiplied in two steps, so that a subnormal result is rounded only once.
  const C half = split.n * C(0.5) + round - round;
  const C power = PowerOfTwo(half);
  const C y = FusedMulAdd(split.rest, power, power) * PowerOfTwo(split.n - half);
  const C s = y / (y + C{2}), square = s * s;
  C sum = C{1} / C(2 * kTerms - 1);
  PLANISH_UNROLL
  for (int k = kTerms - 2; k >= 0; --k) sum = FusedMulAdd(sum, square, C{1} / C(2 * k + 1));
  return x != x ? x : FusedMulAdd(s + s, sum, x > 0 ? x : C{0});
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_BASE_CUDA_MATH_H_
