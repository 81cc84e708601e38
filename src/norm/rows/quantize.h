#ifndef PLANISH_SRC_NORM_ROWS_QUANTIZE_H_
#define PLANISH_SRC_NORM_ROWS_QUANTIZE_H_

#include <cstdint>
#include <limits>

// Quantization of rows of C, float or double, to int8: the equation is in norm.h. The kernels use
// the SIMD target in use. Results do not depend on it, because a maximum is exact.
#ifdef __CUDACC__
#define PLANISH_HOST_DEVICE __host__ __device__
#else
#define PLANISH_HOST_DEVICE
#endif

namespace planish::internal {

/// Returns the largest absolute value of n elements, or NaN if one of them is NaN.
template <class C>
C MaxAbs(const C* values, int64_t n);

/// Computes out = round(values * factor) for n elements. A factor of 0 gives 0 for all values.
template <class C>
void Quantize(const C* values, int64_t n, C factor, int8_t* out);

/// The scale of a quantized row, and the factor that Quantize takes.
template <class C>
struct RowScale {
  C scale, factor;
};

/// Returns the scale of a row whose largest absolute value is `max`, for CPU and GPU.
template <class C>
PLANISH_HOST_DEVICE RowScale<C> RowScaleOf(C max) {
  using Limits = std::numeric_limits<C>;
  constexpr C kMax = Limits::max(), kNan = Limits::quiet_NaN(), kLeast = 128 * Limits::min();
  if (!(max <= kMax)) return {kNan, C{0}};
  // The scale would be subnormal, and the factor infinite.
  if (max < kLeast) return {C{0}, C{0}};
  return {max / 127, 127 / max};
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ROWS_QUANTIZE_H_
