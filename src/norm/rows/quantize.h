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

/// Limits of C; code for a GPU cannot call std::numeric_limits.
template <class C>
inline constexpr C kLargest = std::numeric_limits<C>::max();
template <class C>
inline constexpr C kInfinity = std::numeric_limits<C>::infinity();
template <class C>
inline constexpr C kNan = std::numeric_limits<C>::quiet_NaN();
/// Below it the scale of a row would be subnormal, and its factor infinite.
template <class C>
inline constexpr C kLeastQuantized = 128 * std::numeric_limits<C>::min();

/// Returns the scale of a row whose largest absolute value is `max`, for CPU and GPU.
template <class C>
PLANISH_HOST_DEVICE RowScale<C> RowScaleOf(C max) {
  if (!(max <= kLargest<C>)) return {kNan<C>, C{0}};
  if (max < kLeastQuantized<C>) return {C{0}, C{0}};
  return {max / 127, 127 / max};
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ROWS_QUANTIZE_H_
