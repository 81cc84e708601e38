#ifndef PLANISH_SRC_RNN_CUDA_NORM_H_
#define PLANISH_SRC_RNN_CUDA_NORM_H_

#include <cstdint>
#include <type_traits>

#include "src/base/cuda/kernel.h"
#include "src/base/cuda/team.h"
#include "src/rnn/cuda/cells.h"
#include "src/base/cuda/math.h"

// Norms in the recurrent kernels. A block shares a row of `gates` * `hidden` elements. The first
// kFirst gates have one norm, the next kFirst gates another, and so on. A thread has the units
// ThreadIndex(), ThreadIndex() + BlockThreads(), ... with all their gates.
namespace planish::internal::cuda {

// --- Tuning constants (docs/tuning.md) ---

/// The largest number of threads that share a row.
inline constexpr int kMaxRowThreads = 512;

// --- End of tuning constants ---

/// The threads of a block, which share a row; sums up to eight values a thread.
using RowTeam = Team<8>;

/// The coefficients of a norm: mean = hi + lo, where hi is the rounded mean, and rstd.
template <class T>
struct NormCoefficients {
  T hi, lo, rstd;

  PLANISH_DEVICE T Xhat(T z) const { return ((z - hi) - lo) * rstd; }
};

template <class T, int N>
PLANISH_DEVICE void ReadCoefficients(const T* from, NormCoefficients<T> (&norm_coefficients)[N]) {
  PLANISH_UNROLL
  for (int i = 0; i < N; ++i) {
    norm_coefficients[i] = {from[i * kNormCoefficients], from[i * kNormCoefficients + 1],
                            from[i * kNormCoefficients + 2]};
  }
}
/// Writes the coefficients, by the block's first thread.
template <class T, int N>
PLANISH_DEVICE void WriteCoefficients(const NormCoefficients<T> (&norm_coefficients)[N], T* to) {
  if (ThreadIndex() != 0) return;
  PLANISH_UNROLL
  for (int i = 0; i < N; ++i) {
    to[i * kNormCoefficients] = norm_coefficients[i].hi,
           to[i * kNormCoefficients + 1] = norm_coefficients[i].lo;
    to[i * kNormCoefficients + 2] = norm_coefficients[i].rstd;
  }
}

/// Calls f(norm, gate, k) for all elements of the thread.
template <int kGates, int kFirst, class F>
PLANISH_DEVICE void ForUnitGates(int64_t hidden, F&& f) {
  for (int64_t k = ThreadIndex(); k < hidden; k += BlockThreads()) {
    PLANISH_UNROLL
    for (int gate = 0; gate < kGates; ++gate) f(gate / kFirst, gate, k);
  }
}

/// Returns the number of elements of norm `norm`.
template <int kGates, int kFirst>
PLANISH_DEVICE double ElementsOf(int norm, int64_t hidden) {
  const int rest = kGates - norm * kFirst;
  return static_cast<double>((rest < kFirst ? rest : kFirst) * hidden);
}

/// Returns the coefficients from the mean and the sum of squared distances from it.
PLANISH_DEVICE NormCoefficients<float> CoefficientsOfStatistics(double mean, double squares,
                                                                double n, double eps) {
  double variance = squares / n;
  if (variance < 0) variance = 0;
  const auto hi = static_cast<float>(mean);
  return {hi, static_cast<float>(mean - static_cast<double>(hi)),
          static_cast<float>(1.0 / sqrt(variance + eps))};
}

/// Computes the coefficients of the elements value(gate, k).
///
/// For float, sums distances from the first element and their squares in double. No element is
/// further from the mean than sqrt(n) deviations. So the relative error of the variance is at most
/// n 2^-53, and no square overflows or underflows. For double, sums about the mean.
template <int kGates, int kFirst, int kNorms, class T, class F>
PLANISH_DEVICE void ComputeCoefficients(RowTeam& team, int64_t hidden, double eps, F&& value,
                                        NormCoefficients<T> (&norm_coefficients)[kNorms]) {
  double shift[kNorms], sums[2 * kNorms];
  PLANISH_UNROLL
  for (int i = 0; i < kNorms; ++i) {
    shift[i] = static_cast<double>(value(i * kFirst, int64_t{0}));
    sums[2 * i] = sums[2 * i + 1] = 0;
  }
  if constexpr (std::is_same_v<T, float>) {
    ForUnitGates<kGates, kFirst>(hidden, [&](int i, int gate, int64_t k) {
      const double d = static_cast<double>(value(gate, k)) - shift[i];
      sums[2 * i] += d;
      sums[2 * i + 1] = fma(d, d, sums[2 * i + 1]);
    });
    team.SumAll(sums);
    PLANISH_UNROLL
    for (int i = 0; i < kNorms; ++i) {
      const double n = ElementsOf<kGates, kFirst>(i, hidden), mean = sums[2 * i] / n;
      norm_coefficients[i] = CoefficientsOfStatistics(
          shift[i] + mean, fma(-sums[2 * i], mean, sums[2 * i + 1]), n, eps);
    }
  } else {
    double totals[kNorms];
    PLANISH_UNROLL
    for (int i = 0; i < kNorms; ++i) totals[i] = 0;
    ForUnitGates<kGates, kFirst>(
        hidden, [&](int i, int gate, int64_t k) { totals[i] += value(gate, k) - shift[i]; });
    team.SumAll(totals);
    PLANISH_UNROLL
    for (int i = 0; i < kNorms; ++i) {
      const double mean = totals[i] / ElementsOf<kGates, kFirst>(i, hidden);
      const double hi = shift[i] + mean, of_mean = hi - shift[i];
      norm_coefficients[i] = {hi, (shift[i] - (hi - of_mean)) + (mean - of_mean), 0};
    }
    ForUnitGates<kGates, kFirst>(hidden, [&](int i, int gate, int64_t k) {
      const double d = (value(gate, k) - norm_coefficients[i].hi) - norm_coefficients[i].lo;
      sums[2 * i] += d;
      sums[2 * i + 1] = fma(d, d, sums[2 * i + 1]);
    });
    team.SumAll(sums);
    PLANISH_UNROLL
    for (int i = 0; i < kNorms; ++i) {
      const double n = ElementsOf<kGates, kFirst>(i, hidden), more = sums[2 * i] / n;
      double variance = fma(-sums[2 * i], more, sums[2 * i + 1]) / n;
      if (variance < 0) variance = 0;
      const double lo = norm_coefficients[i].lo + more, hi = norm_coefficients[i].hi + lo;
      norm_coefficients[i] = {hi, lo - (hi - norm_coefficients[i].hi), 1.0 / sqrt(variance + eps)};
    }
  }
}

/// Replaces the thread's sums of g and of g * xhat by their means over the row.
template <int kGates, int kFirst, int kNorms, class T>
PLANISH_DEVICE void GradientMeans(RowTeam& team, int64_t hidden, T (&mean)[kNorms],
                                  T (&dot)[kNorms]) {
  T sums[2 * kNorms];
  PLANISH_UNROLL
  for (int i = 0; i < kNorms; ++i) sums[2 * i] = mean[i], sums[2 * i + 1] = dot[i];
  team.SumAll(sums);
  PLANISH_UNROLL
  for (int i = 0; i < kNorms; ++i) {
    const T n = static_cast<T>(ElementsOf<kGates, kFirst>(i, hidden));
    mean[i] = sums[2 * i] / n;
    dot[i] = sums[2 * i + 1] / n;
  }
}

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_RNN_CUDA_NORM_H_
