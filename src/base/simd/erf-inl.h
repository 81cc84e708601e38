// Branchless Erf, and the derivatives of Tanh and Erf. Compiled once for each target, in namespace
// HWY_NAMESPACE.
#if defined(PLANISH_SRC_BASE_SIMD_ERF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_BASE_SIMD_ERF_INL_H_
#undef PLANISH_SRC_BASE_SIMD_ERF_INL_H_
#else
#define PLANISH_SRC_BASE_SIMD_ERF_INL_H_
#endif

#include <cstddef>

#include "src/base/simd/math-inl.h"
#include "src/base/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

/// A function and its derivative.
template <class D>
struct ValueAndSlope {
  hn::Vec<D> value, slope;
};

/// Returns tanh(x) within 4 ulp and 1 - tanh(x)^2 within 6 ulp. Slopes below eight times the
/// smallest normal number can be 0.
template <class D>
HWY_INLINE ValueAndSlope<D> TanhAndSlope(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto below = hn::Mul(hn::Abs(x), hn::Set(d, T{-2}));
  const auto least = hn::Set(d, -ExpConstants<T>::kNormal);
  const auto terms = TanhTermsOf(d, hn::Max(below, least));
  const auto half = hn::Div(hn::Set(d, T{1}), hn::Add(terms.m, hn::Set(d, T{2})));
  const auto twice = hn::Add(half, half);
  // 4 exp(-2|x|) / (1 + exp(-2|x|))^2: the difference 1 - tanh(x)^2 would cancel.
  const auto slope =
      hn::IfThenElseZero(hn::Gt(below, least), hn::Mul(hn::Mul(terms.power, twice), twice));
  const auto value = hn::CopySign(hn::Mul(terms.m, half), x);
  return {KeepNan<D>(x, value), KeepNan<D>(x, slope)};
}

template <class T>
struct ErfConstants;

// kSmall: erf(t) / t - 1 as a polynomial in t^2 for t <= kSplit, within 2^-31 (float) or 2^-62
// (double) of erf. kLarge: -log(1 - erf(t)) / t - 1 as a polynomial in t for kSplit <= t <= kMax,
// within 2^-30 or 2^-61 of erf. Weighted minimax fits, the constant last.
template <>
struct ErfConstants<float> {
  static constexpr float kSplit = 0.93f;
  /// From here on erf is 1.
  static constexpr float kMax = 4;
  /// exp(-x^2) is 0 here.
  static constexpr float kFlat = 10.5f;
  static constexpr float kSmall[] = {0x1.5cd75p-14f,  -0x1.aa4034p-11f, 0x1.54c81ep-8f,
                                     -0x1.b80e96p-6f, 0x1.ce2e1p-4f,    -0x1.812742p-2f,
                                     0x1.06eba8p-3f};
  static constexpr float kLarge[] = {0x1.861816p-17f, -0x1.569fa4p-12f, 0x1.df873ap-9f,
                                     -0x1.85dfbap-6f, 0x1.b34ec8p-4f,   0x1.452f6ep-1f,
                                     0x1.077bfp-3f};
};

template <>
struct ErfConstants<double> {
  static constexpr double kSplit = 1;
  static constexpr double kMax = 6;
  static constexpr double kFlat = 27.5;
  static constexpr double kSmall[] = {
      0x1.0579130ce5be4p-34, -0x1.386a82ed731a8p-30, 0x1.f7a3fc821c8d3p-27, -0x1.5f1d349dc59fdp-23,
      0x1.b9def15a8ba19p-20, -0x1.f4d1df33f5e7cp-17, 0x1.f9a321a0d85fbp-14, -0x1.c02db3d8eaf67p-11,
      0x1.565bcd0db024ap-8,  -0x1.b82ce3128499bp-6,  0x1.ce2f21a042b20p-4,  -0x1.812746b0379e6p-2,
      0x1.06eba8214db69p-3};
  static constexpr double kLarge[] = {
      0x1.c5908d1af54fbp-43,  -0x1.5ea17eddde11dp-37, 0x1.fee2674269b39p-33,
      -0x1.d24b829fd582dp-29, 0x1.2ac37225cc564p-25,  -0x1.1d18fdb297dfap-22,
      0x1.a290a021d661dp-20,  -0x1.df96d5d029faep-18, 0x1.aaef0dbf45212p-16,
      -0x1.1c4b75aeb5a33p-14, 0x1.eb1b5008c662ep-14,  -0x1.11b6bd6e58d42p-15,
      -0x1.1a0ef5d93dac0p-11, 0x1.b30498d525abfp-10,  -0x1.8cbca95b112e0p-13,
      -0x1.3988996b8609cp-6,  0x1.a4f74f286dcc5p-4,   0x1.45f2f912dcfcdp-1,
      0x1.06ebacbc154f3p-3};
};

/// Returns erf(x) within 2 ulp. erf(-0) is -0; NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> Erf(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  using Constants = ErfConstants<T>;
  const auto t = hn::Min(hn::Abs(x), hn::Set(d, Constants::kMax));
  const auto small = hn::MulAdd(Polynomial(d, hn::Mul(t, t), Constants::kSmall), t, t);
  const auto split = ExpOf(d, hn::Neg(hn::MulAdd(Polynomial(d, t, Constants::kLarge), t, t)));
  const auto power = PowerOfTwo(d, split.n);
  const auto large = hn::Sub(hn::Set(d, T{1}), hn::MulAdd(split.rest, power, power));
  const auto y = hn::IfThenElse(hn::Le(t, hn::Set(d, Constants::kSplit)), small, large);
  return KeepNan<D>(x, hn::CopySign(y, x));
}

/// Returns erf(x) and its derivative, 2 / sqrt(pi) * exp(-x^2). The slope is within 4 ulp; on
/// targets without fused multiply-add within 4 + x^2.
template <class D>
HWY_INLINE ValueAndSlope<D> ErfAndSlope(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto t = hn::Min(hn::Abs(x), hn::Set(d, ErfConstants<T>::kFlat));
  const auto square = hn::Mul(t, t);
  const auto rest = hn::MulSub(t, t, square);  // the rounding error of the square
  const auto power = Exp(d, hn::Neg(square));
  const auto slope =
      hn::Mul(hn::NegMulAdd(power, rest, power), hn::Set(d, static_cast<T>(1.1283791670955126)));
  return {Erf(d, x), KeepNan<D>(x, slope)};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_BASE_SIMD_ERF_INL_H_
