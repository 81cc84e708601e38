// Branchless Exp, Sigmoid and Tanh of vectors of float and double. Compiled once for each target,
// in namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_BASE_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_BASE_SIMD_MATH_INL_H_
#undef PLANISH_SRC_BASE_SIMD_MATH_INL_H_
#else
#define PLANISH_SRC_BASE_SIMD_MATH_INL_H_
#endif

#include <cstddef>

#include "src/base/simd/simd.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct ExpConstants;

template <>
struct ExpConstants<float> {
  static constexpr int kMantissaBits = 23;
  /// Adding it to a value leaves the nearest integer in the low bits.
  static constexpr float kRound = 0x1.8p23f;
  /// log(2) in two parts. kLog2High has few enough bits for its multiples to be exact.
  static constexpr float kLog2High = 0x1.63p-1f, kLog2Low = -0x1.bd0106p-13f;
  /// Range of x outside of which exp is 0 or infinity.
  static constexpr float kMin = -105, kMax = 90;
  /// At x = kInfinite n is 128. At x = -kNormal 2^n is still a normal number.
  static constexpr float kInfinite = 88.5f, kNormal = 87;
  /// (exp(r) - 1 - r) / r^2 for |r| <= log(2) / 2: coefficients of a Chebyshev fit, the constant
  /// last.
  static constexpr float kTerms[] = {0x1.6d112cp-10f, 0x1.120b9p-7f, 0x1.55551ap-5f, 0x1.5554dcp-3f,
                                     0x1p-1f};
};

template <>
struct ExpConstants<double> {
  static constexpr int kMantissaBits = 52;
  static constexpr double kRound = 0x1.8p52;
  static constexpr double kLog2High = 0x1.62e42feep-1, kLog2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kMin = -747, kMax = 711;
  static constexpr double kInfinite = 709.6, kNormal = 708;
  static constexpr double kTerms[] = {
      0x1.af38c67fbb53ep-26, 0x1.28919ccaf9211p-22, 0x1.71de0da24602dp-19, 0x1.a019b8f9792eep-16,
      0x1.a01a01a7c73cp-13,  0x1.6c16c17890eb4p-10, 0x1.11111111109afp-7,  0x1.5555555553d56p-5,
      0x1.5555555555556p-3,  0x1.0000000000001p-1};
};

/// Returns the polynomial with these coefficients, the constant last, at x.
template <class D, size_t kCount>
HWY_INLINE hn::Vec<D> Polynomial(D d, hn::Vec<D> x, const hn::TFromD<D> (&terms)[kCount]) {
  auto sum = hn::Set(d, terms[0]);
  for (size_t i = 1; i < kCount; ++i) sum = hn::MulAdd(sum, x, hn::Set(d, terms[i]));
  return sum;
}

/// exp(x) = 2^n * (1 + rest), with an integer n.
template <class D>
struct SplitExp {
  hn::Vec<D> n, rest;
};

/// Computes n and rest for x in [kMin, kMax].
template <class D>
HWY_INLINE SplitExp<D> ExpOf(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  using Constants = ExpConstants<T>;
  const auto round = hn::Set(d, Constants::kRound);
  const auto log2e = hn::Set(d, static_cast<T>(1.4426950408889634));
  const auto n = hn::Sub(hn::MulAdd(x, log2e, round), round);
  const auto r = hn::NegMulAdd(n, hn::Set(d, Constants::kLog2Low),
                               hn::NegMulAdd(n, hn::Set(d, Constants::kLog2High), x));
  return {n, hn::MulAdd(hn::Mul(r, r), Polynomial(d, r, Constants::kTerms), r)};
}

/// Returns 2^n for an integer n with a normal result, or infinity for the first n that is too
/// large.
template <class D>
HWY_INLINE hn::Vec<D> PowerOfTwo(D d, hn::Vec<D> n) {
  using Constants = ExpConstants<hn::TFromD<D>>;
  const hn::RebindToUnsigned<D> bits;
  const auto low = hn::BitCast(bits, hn::Add(n, hn::Set(d, Constants::kRound)));
  const auto one = hn::BitCast(bits, hn::Set(d, hn::TFromD<D>{1}));
  return hn::BitCast(d, hn::Add(hn::ShiftLeft<Constants::kMantissaBits>(low), one));
}

/// Returns exp(x) for x in [kMin, kMax]. Multiplies by 2^n in two steps, so that a subnormal result
/// is rounded only once.
template <class D>
HWY_INLINE hn::Vec<D> ExpWithin(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto round = hn::Set(d, ExpConstants<T>::kRound);
  const auto split = ExpOf(d, x);
  const auto half = hn::Sub(hn::Add(hn::Mul(split.n, hn::Set(d, T{0.5})), round), round);
  const auto first = PowerOfTwo(d, half);
  const auto second = PowerOfTwo(d, hn::Sub(split.n, half));
  return hn::Mul(hn::MulAdd(split.rest, first, first), second);
}

template <class D>
HWY_INLINE hn::Vec<D> KeepNan(hn::Vec<D> x, hn::Vec<D> y) {
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

/// Returns exp(x) within 2 ulp. NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> Exp(D d, hn::Vec<D> x) {
  using Constants = ExpConstants<hn::TFromD<D>>;
  const auto within = hn::Min(hn::Max(x, hn::Set(d, Constants::kMin)), hn::Set(d, Constants::kMax));
  return KeepNan<D>(x, ExpWithin(d, within));
}

/// Returns 1 / (1 + exp(-x)) within 4 ulp. Results below the smallest normal number can be 0. NaN
/// stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> Sigmoid(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  using Constants = ExpConstants<T>;
  // Clamping still gives the limits: at one end 2^n is infinity, at the other exp(-x) is negligible
  // compared with 1.
  const auto within =
      hn::Min(hn::Max(x, hn::Set(d, -Constants::kInfinite)), hn::Set(d, Constants::kNormal));
  const auto split = ExpOf(d, hn::Neg(within));
  const auto power = PowerOfTwo(d, split.n);
  const auto one = hn::Set(d, T{1});
  const auto sum = hn::MulAdd(hn::Add(one, split.rest), power, one);
  return KeepNan<D>(x, hn::Div(one, sum));
}

/// m = exp(-2|x|) - 1, which is accurate near 0, and exp(-2|x|). tanh|x| = -m / (2 + m).
template <class D>
struct TanhTerms {
  hn::Vec<D> m, power;
};

/// Computes the terms for `below`, -2|x|.
template <class D>
HWY_INLINE TanhTerms<D> TanhTermsOf(D d, hn::Vec<D> below) {
  const auto split = ExpOf(d, below);
  const auto power = PowerOfTwo(d, split.n);
  return {hn::MulAdd(split.rest, power, hn::Sub(power, hn::Set(d, hn::TFromD<D>{1}))),
          hn::MulAdd(split.rest, power, power)};
}

/// Returns tanh(x) within 4 ulp. tanh(-0) is -0; NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> Tanh(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  // exp(-40) is negligible compared with 1, also in double.
  const auto below = hn::Mul(hn::Abs(x), hn::Set(d, T{-2}));
  const auto m = TanhTermsOf(d, hn::Max(below, hn::Set(d, T{-40}))).m;
  const auto y = hn::Div(m, hn::Add(m, hn::Set(d, T{2})));
  return KeepNan<D>(x, hn::CopySign(y, x));
}

/// Returns log(1 + exp(x)) within 4 ulp, as max(x, 0) + log(1 + exp(-|x|)). NaN stays NaN.
template <class D>
HWY_INLINE hn::Vec<D> Softplus(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto y = Exp(d, hn::Neg(hn::Abs(x)));
  // log(1 + y) = 2 atanh(s), with s = y / (2 + y) <= 1/3, is 2 s times the sum of s^2k / (2k + 1).
  // The first omitted term is less than an eighth of an ulp.
  constexpr int kTerms = sizeof(T) == 4 ? 8 : 16;
  const auto s = hn::Div(y, hn::Add(y, hn::Set(d, T{2}))), square = hn::Mul(s, s);
  auto sum = hn::Set(d, T{1} / (2 * kTerms - 1));
  for (int k = kTerms - 2; k >= 0; --k) {
    sum = hn::MulAdd(sum, square, hn::Set(d, T{1} / static_cast<T>(2 * k + 1)));
  }
  return KeepNan<D>(x, hn::MulAdd(hn::Add(s, s), sum, hn::Max(x, hn::Zero(d))));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_BASE_SIMD_MATH_INL_H_
