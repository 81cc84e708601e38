#include "src/base/simd/math_arrays.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/base/simd/math_arrays.cc"
#include "src/base/simd/compiled_targets.h"
// Must follow the line above and precede all other includes.
#include <hwy/foreach_target.h>
// Must precede the headers that are compiled for each target.
#include <hwy/highway.h>

#include "src/base/simd/erf-inl.h"
#include "src/base/simd/math-inl.h"
#include "src/base/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

/// Computes y = f(x) for n elements; the last ones one at a time.
template <class T, class F>
HWY_INLINE void Map(const T* x, int64_t n, T* y, const F& f) {
  const hn::ScalableTag<T> full;
  const hn::CappedTag<T, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(full));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(full, hn::LoadU(full, x + i)), full, y + i);
  for (; i < n; ++i) hn::StoreU(f(one, hn::LoadU(one, x + i)), one, y + i);
}

template <class T>
HWY_INLINE void ExpMap(const T* x, int64_t n, T* y) {
  Map(x, n, y, [](auto d, auto v) HWY_ATTR { return Exp(d, v); });
}
template <class T>
HWY_INLINE void SigmoidMap(const T* x, int64_t n, T* y) {
  Map(x, n, y, [](auto d, auto v) HWY_ATTR { return Sigmoid(d, v); });
}
template <class T>
HWY_INLINE void TanhMap(const T* x, int64_t n, T* y) {
  Map(x, n, y, [](auto d, auto v) HWY_ATTR { return Tanh(d, v); });
}
template <class T>
HWY_INLINE void ErfMap(const T* x, int64_t n, T* y) {
  Map(x, n, y, [](auto d, auto v) HWY_ATTR { return Erf(d, v); });
}
template <class T>
HWY_INLINE void TanhSlopeMap(const T* x, int64_t n, T* y) {
  Map(x, n, y, [](auto d, auto v) HWY_ATTR { return TanhAndSlope(d, v).slope; });
}
template <class T>
HWY_INLINE void ErfSlopeMap(const T* x, int64_t n, T* y) {
  Map(x, n, y, [](auto d, auto v) HWY_ATTR { return ErfAndSlope(d, v).slope; });
}

template <class T>
HWY_INLINE void SoftplusMap(const T* x, int64_t n, T* y) {
  Map(x, n, y, [](auto d, auto v) HWY_ATTR { return Softplus(d, v); });
}

void ExpFloats(const float* x, int64_t n, float* y) { ExpMap(x, n, y); }
void ExpDoubles(const double* x, int64_t n, double* y) { ExpMap(x, n, y); }
void SigmoidFloats(const float* x, int64_t n, float* y) { SigmoidMap(x, n, y); }
void SigmoidDoubles(const double* x, int64_t n, double* y) { SigmoidMap(x, n, y); }
void TanhFloats(const float* x, int64_t n, float* y) { TanhMap(x, n, y); }
void TanhDoubles(const double* x, int64_t n, double* y) { TanhMap(x, n, y); }
void SoftplusFloats(const float* x, int64_t n, float* y) { SoftplusMap(x, n, y); }
void SoftplusDoubles(const double* x, int64_t n, double* y) { SoftplusMap(x, n, y); }
void ErfFloats(const float* x, int64_t n, float* y) { ErfMap(x, n, y); }
void ErfDoubles(const double* x, int64_t n, double* y) { ErfMap(x, n, y); }
void TanhSlopeFloats(const float* x, int64_t n, float* y) { TanhSlopeMap(x, n, y); }
void TanhSlopeDoubles(const double* x, int64_t n, double* y) { TanhSlopeMap(x, n, y); }
void ErfSlopeFloats(const float* x, int64_t n, float* y) { ErfSlopeMap(x, n, y); }
void ErfSlopeDoubles(const double* x, int64_t n, double* y) { ErfSlopeMap(x, n, y); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace planish::internal {

HWY_EXPORT(ExpFloats);
HWY_EXPORT(ExpDoubles);
HWY_EXPORT(SigmoidFloats);
HWY_EXPORT(SigmoidDoubles);
HWY_EXPORT(TanhFloats);
HWY_EXPORT(TanhDoubles);
HWY_EXPORT(SoftplusFloats);
HWY_EXPORT(SoftplusDoubles);
HWY_EXPORT(ErfFloats);
HWY_EXPORT(ErfDoubles);
HWY_EXPORT(TanhSlopeFloats);
HWY_EXPORT(TanhSlopeDoubles);
HWY_EXPORT(ErfSlopeFloats);
HWY_EXPORT(ErfSlopeDoubles);

template <>
void ExpArray(const float* x, int64_t n, float* y) {
  PLANISH_DISPATCH(ExpFloats)(x, n, y);
}
template <>
void ExpArray(const double* x, int64_t n, double* y) {
  PLANISH_DISPATCH(ExpDoubles)(x, n, y);
}
template <>
void SigmoidArray(const float* x, int64_t n, float* y) {
  PLANISH_DISPATCH(SigmoidFloats)(x, n, y);
}
template <>
void SigmoidArray(const double* x, int64_t n, double* y) {
  PLANISH_DISPATCH(SigmoidDoubles)(x, n, y);
}
template <>
void TanhArray(const float* x, int64_t n, float* y) {
  PLANISH_DISPATCH(TanhFloats)(x, n, y);
}
template <>
void TanhArray(const double* x, int64_t n, double* y) {
  PLANISH_DISPATCH(TanhDoubles)(x, n, y);
}
template <>
void ErfArray(const float* x, int64_t n, float* y) {
  PLANISH_DISPATCH(ErfFloats)(x, n, y);
}
template <>
void ErfArray(const double* x, int64_t n, double* y) {
  PLANISH_DISPATCH(ErfDoubles)(x, n, y);
}
template <>
void TanhSlopeArray(const float* x, int64_t n, float* y) {
  PLANISH_DISPATCH(TanhSlopeFloats)(x, n, y);
}
template <>
void TanhSlopeArray(const double* x, int64_t n, double* y) {
  PLANISH_DISPATCH(TanhSlopeDoubles)(x, n, y);
}
template <>
void ErfSlopeArray(const float* x, int64_t n, float* y) {
  PLANISH_DISPATCH(ErfSlopeFloats)(x, n, y);
}
template <>
void ErfSlopeArray(const double* x, int64_t n, double* y) {
  PLANISH_DISPATCH(ErfSlopeDoubles)(x, n, y);
}

template <>
void SoftplusArray(const float* x, int64_t n, float* y) {
  PLANISH_DISPATCH(SoftplusFloats)(x, n, y);
}
template <>
void SoftplusArray(const double* x, int64_t n, double* y) {
  PLANISH_DISPATCH(SoftplusDoubles)(x, n, y);
}

}  // namespace planish::internal
#endif  // HWY_ONCE
