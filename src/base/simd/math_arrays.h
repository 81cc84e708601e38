#ifndef PLANISH_SRC_BASE_SIMD_MATH_ARRAYS_H_
#define PLANISH_SRC_BASE_SIMD_MATH_ARRAYS_H_

#include <cstdint>

// The functions of math-inl.h and erf-inl.h over arrays of float or double, with the SIMD target in
// use. Results are within 4 ulp for every input, except the slopes (erf-inl.h).
namespace planish::internal {

/// Computes y[i] = exp(x[i]) for i < n; y may be x.
template <class T>
void ExpArray(const T* x, int64_t n, T* y);

/// Computes y[i] = 1 / (1 + exp(-x[i])) for i < n; y may be x.
template <class T>
void SigmoidArray(const T* x, int64_t n, T* y);

/// Computes y[i] = tanh(x[i]) for i < n; y may be x.
template <class T>
void TanhArray(const T* x, int64_t n, T* y);

/// Computes y[i] = log(1 + exp(x[i])) for i < n; y may be x.
template <class T>
void SoftplusArray(const T* x, int64_t n, T* y);

/// Computes y[i] = erf(x[i]) for i < n; y may be x.
template <class T>
void ErfArray(const T* x, int64_t n, T* y);

/// Compute the derivatives of tanh and erf at x[i] for i < n; y may be x.
template <class T>
void TanhSlopeArray(const T* x, int64_t n, T* y);
template <class T>
void ErfSlopeArray(const T* x, int64_t n, T* y);

}  // namespace planish::internal

#endif  // PLANISH_SRC_BASE_SIMD_MATH_ARRAYS_H_
