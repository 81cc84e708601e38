#ifndef PLANISH_SRC_NORM_ROWS_INL_H_
#define PLANISH_SRC_NORM_ROWS_INL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "src/base/loop.h"
#include "src/norm/recipe.h"

// The arithmetic of every norm, a row at a time. `omp simd` tells the compiler (-fopenmp-simd; no
// OpenMP library is involved) two things that C++ has no words for: that a sum may run in several
// lanes, and that the turns of a loop are independent although its output may be its input.
namespace planish::internal {

// Backward sums T in lanes of T over this many columns, then goes on in double: that bounds the
// rounding error for rows of any length.
inline constexpr int64_t kSumColumns = 64;

// Likewise down the columns: dgain and dbias are summed in T over this many rows.
inline constexpr int64_t kGroupRows = 32;

/// Sums over a row of d = x - shift and of d^2.
struct ShiftedSums {
  double first;
  double second;
};

template <class T>
ShiftedSums SumsAbout(double shift, const T* x, int64_t cols) {
  double first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
  for (int64_t c = 0; c < cols; ++c) {
    const double d = double{x[c]} - shift;
    first += d;
    second += d * d;
  }
  return {first, second};
}

/// What xhat = ((x - mean) - mean_lo) * rstd needs. mean + mean_lo is the mean to twice the digits
/// of T, and x - mean loses nothing where it matters: near the mean it is exact.
template <class T>
struct RowMoments {
  T mean;
  T mean_lo;
  T rstd;
};

template <Recipe kRecipe, class T>
RowMoments<T> MomentsOf(const T* x, int64_t cols, double eps) {
  const double n = static_cast<double>(cols);
  double shift = kRecipe.centre ? double{x[0]} : 0;
  ShiftedSums sums = SumsAbout(shift, x, cols);
  if constexpr (kRecipe.centre) {
    // var = E[d^2] - E[d]^2 cancels. Floats summed in double can spare a factor 2^10, which takes a
    // first element 31 deviations from the mean; beyond that, and for doubles, the sums are taken
    // again about the mean.
    const double kept = sums.second - sums.first * (sums.first / n);
    if (std::is_same_v<T, double> || kept < sums.second * 0x1p-10) {
      shift += sums.first / n;
      sums = SumsAbout(shift, x, cols);
    }
  }
  const double offset = kRecipe.centre ? sums.first / n : 0;
  const double var = std::max(sums.second / n - offset * offset, 0.0);  // NaN stays NaN
  RowMoments<T> moments;
  moments.mean = static_cast<T>(shift + offset);
  moments.mean_lo = static_cast<T>((shift - double{moments.mean}) + offset);
  // A variance that has overflowed must not pass for a large one.
  moments.rstd = var <= std::numeric_limits<double>::max()
                     ? static_cast<T>(1 / std::sqrt(var + eps))
                     : std::numeric_limits<T>::quiet_NaN();
  return moments;
}

template <Recipe kRecipe, class T>
T Normalised(T x, const RowMoments<T>& moments) {
  if constexpr (kRecipe.centre) {
    return ((x - moments.mean) - moments.mean_lo) * moments.rstd;
  } else {
    return x * moments.rstd;
  }
}

/// y of one row, which may be x. `gain` and `bias` are read only if kGain and kBias.
template <Recipe kRecipe, bool kGain, bool kBias, class T>
void WriteOutput(const T* x, const T* gain, const T* bias, const RowMoments<T> moments,
                 int64_t cols, T* y) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) {
    T value = Normalised<kRecipe>(x[c], moments);
    if constexpr (kGain) value *= gain[c];
    if constexpr (kBias) value += bias[c];
    y[c] = value;
  }
}

/// Rows [begin, end) of NormForward.
template <Recipe kRecipe, class T>
void ForwardRows(const NormForwardArgs<T>& args, double eps, int64_t begin, int64_t end) {
  constexpr bool kAffine = kRecipe.output == Output::kAffine;
  VisitBool(kAffine && args.gain != nullptr, [&](auto has_gain) {
    VisitBool(kAffine && args.bias != nullptr, [&](auto has_bias) {
      for (int64_t r = begin; r < end; ++r) {
        const T* x = args.x + r * args.cols;
        const RowMoments<T> moments = MomentsOf<kRecipe>(x, args.cols, eps);
        if (args.mean) args.mean[r] = moments.mean;
        if (args.mean_lo) args.mean_lo[r] = moments.mean_lo;
        if (args.rstd) args.rstd[r] = moments.rstd;
        WriteOutput<kRecipe, has_gain(), has_bias()>(x, args.gain, args.bias, moments, args.cols,
                                                     args.y + r * args.cols);
      }
    });
  });
}

/// The means over a row that dx needs.
template <class T>
struct RowMeans {
  T g;
  T g_xhat;
};

/// The row's means, and, if kColumns, its terms of dgain and dbias added to `dgain` and `dbias`.
template <Recipe kRecipe, bool kGain, bool kColumns, class T>
RowMeans<T> TakeMeans(const T* dy, const T* x, const T* gain, const RowMoments<T> moments,
                      int64_t cols, T* dgain, T* dbias) {
  double sum_g = 0, sum_g_xhat = 0;
  for (int64_t begin = 0; begin < cols; begin += kSumColumns) {
    const int64_t end = std::min(begin + kSumColumns, cols);
    T part_g = 0, part_g_xhat = 0;
#pragma omp simd reduction(+ : part_g, part_g_xhat)
    for (int64_t c = begin; c < end; ++c) {
      const T xhat = Normalised<kRecipe>(x[c], moments);
      T g = dy[c];
      if constexpr (kColumns) {
        dgain[c] += g * xhat;
        dbias[c] += g;
      }
      if constexpr (kGain) g *= gain[c];
      part_g += g;
      part_g_xhat += g * xhat;
    }
    sum_g += double{part_g};
    sum_g_xhat += double{part_g_xhat};
  }
  const double n = static_cast<double>(cols);
  return {static_cast<T>(sum_g / n), static_cast<T>(sum_g_xhat / n)};
}

/// dx of one row, which may be dy.
template <Recipe kRecipe, bool kGain, class T>
void WriteInputGradient(const T* dy, const T* x, const T* gain, const RowMoments<T> moments,
                        const RowMeans<T> means, int64_t cols, T* dx) {
#pragma omp simd
  for (int64_t c = 0; c < cols; ++c) {
    T value = dy[c];
    if constexpr (kGain) value *= gain[c];
    if constexpr (kRecipe.via_mean) value -= means.g;
    if constexpr (kRecipe.via_scale) {
      value -= Normalised<kRecipe>(x[c], moments) * means.g_xhat;
    }
    dx[c] = moments.rstd * value;
  }
}

/// Rows [begin, end) of NormBackward: dx if asked for, and, if `dgain` and `dbias` are not null,
/// their terms of dgain and dbias added to those.
template <Recipe kRecipe, class T>
void BackwardRows(const NormBackwardArgs<T>& args, int64_t begin, int64_t end, T* dgain, T* dbias) {
  constexpr bool kAffine = kRecipe.output == Output::kAffine;
  VisitBool(kAffine && args.gain != nullptr, [&](auto has_gain) {
    VisitBool(kAffine && dgain != nullptr, [&](auto has_columns) {
      for (int64_t r = begin; r < end; ++r) {
        const T* dy = args.dy + r * args.cols;
        const T* x = args.x + r * args.cols;
        RowMoments<T> moments{0, 0, args.rstd[r]};
        if constexpr (kRecipe.centre) {
          moments.mean = args.mean[r];
          moments.mean_lo = args.mean_lo[r];
        }
        const RowMeans<T> means = TakeMeans<kRecipe, has_gain(), has_columns()>(
            dy, x, args.gain, moments, args.cols, dgain, dbias);
        if (args.dx) {
          WriteInputGradient<kRecipe, has_gain()>(dy, x, args.gain, moments, means, args.cols,
                                                  args.dx + r * args.cols);
        }
      }
    });
  });
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ROWS_INL_H_
