// Norms of one row of sums, or of c, forward and backward. Compiled once for each SIMD target, in
// the namespace HWY_NAMESPACE.
#if defined(PLANISH_SRC_RNN_CPU_ROW_NORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLANISH_SRC_RNN_CPU_ROW_NORMS_INL_H_
#undef PLANISH_SRC_RNN_CPU_ROW_NORMS_INL_H_
#else
#define PLANISH_SRC_RNN_CPU_ROW_NORMS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace planish::internal {
namespace HWY_NAMESPACE {
namespace {

/// The layout of a norm's elements in a row: `gates` interleaved gates of each unit. The last
/// vectors contain padding.
struct Stretch {
  int64_t gates, hidden;

  template <class T>
  HWY_INLINE int64_t vectors() const {
    return VectorsOf<T>(hidden) * gates;
  }
  /// Returns the number of vectors without padding.
  template <class T>
  HWY_INLINE int64_t whole() const {
    return hidden / kLanes<T> * gates;
  }
  /// Returns the lanes of the last vectors that are not padding.
  template <class T>
  HWY_INLINE auto mask() const {
    return hn::FirstN(Tag<T>(), static_cast<size_t>(hidden % kLanes<T>));
  }
  template <class T>
  HWY_INLINE T count() const {
    return static_cast<T>(gates * hidden);
  }
};

/// The range of variances for which squares neither underflow nor overflow.
template <class T>
inline constexpr T kMinSquare = std::is_same_v<T, float> ? T(1e-25) : T(1e-250);
template <class T>
inline constexpr T kMaxSquare = std::is_same_v<T, float> ? T(1e30) : T(1e250);

template <class T>
HWY_INLINE void WriteCoefficients(double mean, double rest, double variance, double eps,
                                  T* coefficients) {
  const double rstd = 1 / std::sqrt(std::max(0.0, variance) + eps);
  coefficients[0] = static_cast<T>(mean);
  coefficients[1] = static_cast<T>(rstd);
  coefficients[2] = static_cast<T>(-rest * rstd);
}

/// Computes coefficients in double, for floats whose squares underflow or overflow.
HWY_NOINLINE inline void CoefficientsInDouble(const float* z, const Stretch& s, float eps,
                                              float* coefficients) {
  const int64_t vectors = s.vectors<float>(), lanes = kLanes<float>;
  const auto units_of = [&](int64_t v) { return std::min(lanes, s.hidden - v / s.gates * lanes); };
  const auto n = static_cast<double>(s.gates * s.hidden);
  double sum = 0, squares = 0;
  for (int64_t v = 0; v < vectors; ++v) {
    for (int64_t i = 0; i < units_of(v); ++i) sum += static_cast<double>(z[v * lanes + i]);
  }
  const double mean = sum / n;
  for (int64_t v = 0; v < vectors; ++v) {
    for (int64_t i = 0; i < units_of(v); ++i) {
      const double d = static_cast<double>(z[v * lanes + i]) - mean;
      squares += d * d;
    }
  }
  const auto rounded = static_cast<double>(static_cast<float>(mean));
  WriteCoefficients(rounded, mean - rounded, squares / n, static_cast<double>(eps), coefficients);
}

/// Computes coefficients from sums about the mean, and corrects for the rounding of the mean. Used
/// if the mean is large relative to the deviation, and for very small or large elements.
template <class T>
HWY_NOINLINE void CoefficientsAboutMean(const T* z, const Stretch s, T mean, T eps,
                                        T* coefficients) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const int64_t whole = s.whole<T>(), vectors = s.vectors<T>();
  const T count = s.count<T>();
  const auto shift = All<T>(mean);
  auto sum = hn::Zero(d), square = hn::Zero(d);
  for (int64_t v = 0; v < vectors; ++v) {
    auto distance = hn::Sub(Get(z + v * n), shift);
    if (v >= whole) distance = hn::IfThenElseZero(s.mask<T>(), distance);
    sum = hn::Add(sum, distance);
    square = hn::MulAdd(distance, distance, square);
  }
  const T rest = Total<T>(sum) / count, mean_square = Total<T>(square) / count;
  if constexpr (std::is_same_v<T, float>) {
    if (!(mean_square > kMinSquare<T> && mean_square < kMaxSquare<T>)) {
      return CoefficientsInDouble(z, s, eps, coefficients);
    }
  }
  WriteCoefficients<T>(static_cast<double>(mean), static_cast<double>(rest),
                       static_cast<double>(mean_square - rest * rest), static_cast<double>(eps),
                       coefficients);
}

/// Computes coefficients from the sums of elements and of their squares. If the mean is at most the
/// deviation, the variance is accurate to a few units in the last place; otherwise calls
/// CoefficientsAboutMean.
template <class T>
HWY_INLINE void FinishCoefficients(V<T> sum, V<T> square, const T* z, const Stretch& s, T eps,
                                   T* coefficients) {
  const T scale = 1 / s.count<T>();
  const T mean = Total<T>(sum) * scale, mean_square = Total<T>(square) * scale;
  const T variance = mean_square - mean * mean;
  if (!(mean * mean <= variance && variance > kMinSquare<T> && variance < kMaxSquare<T>))
      [[unlikely]] {
    return CoefficientsAboutMean(z, s, mean, eps, coefficients);
  }
  coefficients[0] = mean;
  coefficients[1] = 1 / std::sqrt(variance + eps);
  coefficients[2] = 0;
}

/// Computes the coefficients of two rows of the same layout, or of one if `second` is null. Padding
/// must be 0.
template <class T>
HWY_NOINLINE void ComputeCoefficients(const T* first, const T* second, const Stretch s, T eps,
                                      T* norm_first, T* norm_second) {
  const Tag<T> d;
  constexpr int64_t n = kLanes<T>;
  const int64_t end = s.vectors<T>() * n;
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), square0 = hn::Zero(d), square1 = hn::Zero(d);
  if (!second) {
    int64_t i = 0;
    for (; i + 2 * n <= end; i += 2 * n) {
      const auto z0 = Get(first + i), z1 = Get(first + i + n);
      sum0 = hn::Add(sum0, z0);
      sum1 = hn::Add(sum1, z1);
      square0 = hn::MulAdd(z0, z0, square0);
      square1 = hn::MulAdd(z1, z1, square1);
    }
    for (; i < end; i += n) {
      const auto z0 = Get(first + i);
      sum0 = hn::Add(sum0, z0);
      square0 = hn::MulAdd(z0, z0, square0);
    }
    return FinishCoefficients(hn::Add(sum0, sum1), hn::Add(square0, square1), first, s, eps,
                              norm_first);
  }
  auto sum2 = hn::Zero(d), sum3 = hn::Zero(d), square2 = hn::Zero(d), square3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * n <= end; i += 2 * n) {
    const auto z0 = Get(first + i), z1 = Get(first + i + n);
    const auto z2 = Get(second + i), z3 = Get(second + i + n);
    sum0 = hn::Add(sum0, z0);
    sum1 = hn::Add(sum1, z1);
    sum2 = hn::Add(sum2, z2);
    sum3 = hn::Add(sum3, z3);
    square0 = hn::MulAdd(z0, z0, square0);
    square1 = hn::MulAdd(z1, z1, square1);
    square2 = hn::MulAdd(z2, z2, square2);
    square3 = hn::MulAdd(z3, z3, square3);
  }
  for (; i < end; i += n) {
    const auto z0 = Get(first + i), z2 = Get(second + i);
    sum0 = hn::Add(sum0, z0);
    sum2 = hn::Add(sum2, z2);
    square0 = hn::MulAdd(z0, z0, square0);
    square2 = hn::MulAdd(z2, z2, square2);
  }
  FinishCoefficients(hn::Add(sum0, sum1), hn::Add(square0, square1), first, s, eps, norm_first);
  FinishCoefficients(hn::Add(sum2, sum3), hn::Add(square2, square3), second, s, eps, norm_second);
}

template <class T>
struct CoefficientVectors {
  V<T> mean, rstd, offset;

  HWY_INLINE explicit CoefficientVectors(const T* coefficients)
      : mean(All<T>(coefficients[0])),
        rstd(All<T>(coefficients[1])),
        offset(All<T>(coefficients[2])) {}
  HWY_INLINE V<T> Xhat(V<T> z) const { return hn::MulAdd(hn::Sub(z, mean), rstd, offset); }
};

/// The coefficients of the identity, for elements that are already xhat.
template <class T>
inline constexpr T kIdentity[kCoefficients] = {0, 1, 0};

/// Computes a = gain * xhat.
template <class T, Keep kKeep>
HWY_NOINLINE void Scale(const T* z, const T* coefficients, const T* gain, int64_t vectors, T* kept,
                        T* a) {
  const CoefficientVectors<T> norm(coefficients);
  for (int64_t i = 0; i < vectors * kLanes<T>; i += kLanes<T>) {
    const auto xhat = norm.Xhat(Get(z + i));
    PutKept<kKeep, T>(xhat, kept + i);
    Put<T>(hn::Mul(Get(gain + i), xhat), a + i);
  }
}

/// Computes a = gain_ih * xhat_ih + gain_hh * xhat_hh.
template <class T, Keep kKeep>
HWY_NOINLINE void ScaleBoth(const T* zx, const T* norm_ih, const T* gain_ih, T* kept_ih,
                            const T* zh, const T* norm_hh, const T* gain_hh, T* kept_hh,
                            int64_t vectors, T* a) {
  const CoefficientVectors<T> ih(norm_ih), hh(norm_hh);
  for (int64_t i = 0; i < vectors * kLanes<T>; i += kLanes<T>) {
    const auto xhat_ih = ih.Xhat(Get(zx + i)), xhat_hh = hh.Xhat(Get(zh + i));
    PutKept<kKeep, T>(xhat_ih, kept_ih + i);
    PutKept<kKeep, T>(xhat_hh, kept_hh + i);
    const auto of_x = hn::Mul(Get(gain_ih + i), xhat_ih);
    Put<T>(hn::MulAdd(Get(gain_hh + i), xhat_hh, of_x), a + i);
  }
}

/// Like ScaleBoth for a GRU's r, z and n, interleaved by vectors, but writes gain_hh * xhat_hh of n
/// to ah_n, which can be in zh: element i of ah_n is not before element i of zh.
template <class T, Keep kKeep>
HWY_NOINLINE void ScaleGru(const T* zx, const T* norm_ih, const T* gain_ih, T* kept_ih, const T* zh,
                           const T* norm_hh, const T* gain_hh, T* kept_hh, int64_t vectors, T* a,
                           T* ah_n) {
  constexpr int64_t n = kLanes<T>;
  const CoefficientVectors<T> ih(norm_ih), hh(norm_hh);
  for (int64_t i = 0; i < vectors * n; i += 3 * n, ah_n += n) {
    V<T> of_h[3], of_x[3];
    for (int gate = 0; gate < 3; ++gate) {
      const int64_t j = i + gate * n;
      const auto xhat_ih = ih.Xhat(Get(zx + j)), xhat_hh = hh.Xhat(Get(zh + j));
      PutKept<kKeep, T>(xhat_ih, kept_ih + j);
      PutKept<kKeep, T>(xhat_hh, kept_hh + j);
      of_x[gate] = hn::Mul(Get(gain_ih + j), xhat_ih);
      of_h[gate] = hn::Mul(Get(gain_hh + j), xhat_hh);
    }
    Put<T>(hn::Add(of_x[0], of_h[0]), a + i);
    Put<T>(hn::Add(of_x[1], of_h[1]), a + i + n);
    Put<T>(of_x[2], a + i + 2 * n);
    Put<T>(of_h[2], ah_n);
  }
}

/// A row of a norm's backward. With d the gradient of gain * xhat and g = d * gain, dz = rstd * (g
/// - mean(g) - xhat * mean(g * xhat)). dz may be d.
template <class T>
struct NormRow {
  const T* xhat;
  T rstd;
  T* dz;
};

/// The sums of g and of g * xhat.
template <class T>
struct NormSums {
  V<T> sum, dot;

  HWY_INLINE NormSums() : sum(hn::Zero(Tag<T>())), dot(hn::Zero(Tag<T>())) {}
  /// Adds one vector; dgain += d * xhat.
  HWY_INLINE void Add(V<T> d, const T* xhat, const T* gain, T* dgain) {
    const auto x = Get(xhat), g = hn::Mul(d, Get(gain));
    Put<T>(hn::MulAdd(d, x, Get(dgain)), dgain);
    sum = hn::Add(sum, g);
    dot = hn::MulAdd(g, x, dot);
  }
};

/// The means of g and g * xhat; Write computes dz from them.
template <class T>
struct NormMeans {
  V<T> mean, product, rstd;

  HWY_INLINE NormMeans(const NormSums<T>& sums, T scale, T deviation)
      : mean(All<T>(Total<T>(sums.sum) * scale)),
        product(All<T>(Total<T>(sums.dot) * scale)),
        rstd(All<T>(deviation)) {}
  HWY_INLINE void Write(V<T> d, const T* xhat, const T* gain, T* dz) const {
    // Rounded after the multiplication, like the mean, so that the difference is 0 for one element.
    const auto g = hn::Sub(hn::Mul(d, Get(gain)), mean);
    Put<T>(hn::Mul(rstd, hn::NegMulAdd(Get(xhat), product, g)), dz);
  }
};

/// Computes the backward of a norm of one row, and adds d * xhat to dgain. Padding has gains of 0,
/// so it contributes nothing.
template <class T>
HWY_NOINLINE void NormBackward(const T* d, const NormRow<T> row, const T* gain, const Stretch s,
                               T* dgain) {
  constexpr int64_t n = kLanes<T>;
  const int64_t end = s.vectors<T>() * n;
  NormSums<T> even, odd;
  int64_t i = 0;
  for (; i + 2 * n <= end; i += 2 * n) {
    even.Add(Get(d + i), row.xhat + i, gain + i, dgain + i);
    odd.Add(Get(d + i + n), row.xhat + i + n, gain + i + n, dgain + i + n);
  }
  for (; i < end; i += n) even.Add(Get(d + i), row.xhat + i, gain + i, dgain + i);
  even.sum = hn::Add(even.sum, odd.sum);
  even.dot = hn::Add(even.dot, odd.dot);
  const NormMeans<T> means(even, 1 / s.count<T>(), row.rstd);
  for (i = 0; i < end; i += n) means.Write(Get(d + i), row.xhat + i, gain + i, row.dz + i);
}

/// Computes NormBackward of zx and zh together, from the same d.
template <class T>
HWY_NOINLINE void NormsBackward(const T* d, const NormRow<T> ih, const T* gain_ih,
                                const NormRow<T> hh, const T* gain_hh, const Stretch s, T* dgain_ih,
                                T* dgain_hh) {
  constexpr int64_t n = kLanes<T>;
  const int64_t end = s.vectors<T>() * n;
  NormSums<T> of_ih, of_hh;
  for (int64_t i = 0; i < end; i += n) {
    const auto d_i = Get(d + i);
    of_ih.Add(d_i, ih.xhat + i, gain_ih + i, dgain_ih + i);
    of_hh.Add(d_i, hh.xhat + i, gain_hh + i, dgain_hh + i);
  }
  const T scale = 1 / s.count<T>();
  const NormMeans<T> means_ih(of_ih, scale, ih.rstd), means_hh(of_hh, scale, hh.rstd);
  for (int64_t i = 0; i < end; i += n) {
    const auto d_i = Get(d + i);
    means_ih.Write(d_i, ih.xhat + i, gain_ih + i, ih.dz + i);
    means_hh.Write(d_i, hh.xhat + i, gain_hh + i, hh.dz + i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace planish::internal
HWY_AFTER_NAMESPACE();

#endif  // PLANISH_SRC_RNN_CPU_ROW_NORMS_INL_H_
