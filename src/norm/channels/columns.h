#ifndef PLANISH_SRC_NORM_CHANNELS_COLUMNS_H_
#define PLANISH_SRC_NORM_CHANNELS_COLUMNS_H_

#include <cstdint>

#include "planish/types.h"

// The kernels over channels, for T float, double, bfloat16 and float16, of the instruction set in
// use: sums, and maps whose numbers belong to a column or to a run of columns. They check nothing.
namespace planish::internal {

/// What is summed over a channel, of its numbers a (x in forward, dy in backward).
enum class ChannelSums : uint8_t {
  kNone,
  kMoments,   ///< d and d^2, d = a - shift; numbers of a channel: {shift}
  kGradient,  ///< a and a * xhat; numbers: {mean, rstd, offset} of a RowCoefficients
};

/// What a channel's numbers become.
enum class ChannelMap : uint8_t {
  kNone,
  kNormalise,  ///< (a - mean) * scale + bias; numbers of a channel: {mean, scale, bias}
  /// ((a - mean_g) - xhat * mean_g_xhat) * scale; numbers: {mean, rstd, offset, mean_g,
  /// mean_g_xhat, scale}
  kGradient,
  kScale,  ///< a * scale; numbers: {scale}
};

inline constexpr int kSumNumbers = 3, kMapNumbers = 6;  // at most

/// A channel's numbers, or arrays of them.
template <class C>
struct SumNumbers {
  const C* at[kSumNumbers];
};
template <class C>
struct MapNumbers {
  const C* at[kMapNumbers];
};

/// Rows that a column's sum runs over in C before it goes on in double.
inline constexpr int64_t kSumRows = 8;

/// More numbers than a vector has, and the least that a run of them has.
inline constexpr int64_t kPeriodPad = 64, kMinRun = 32;

/// A number near the mean of each column: the mean of a few of its numbers, of a constant column
/// that constant.
template <class T>
void ShiftColumns(const T* x, int64_t stride, int64_t rows, int64_t cols, Compute<T>* shift);

/// Adds to first[c] and second[c] the sums over rows of column c, c < cols. Each column has its
/// numbers.
template <class T>
void SumColumns(ChannelSums sums, const T* a, const T* x, int64_t stride, int64_t rows,
                int64_t cols, const SumNumbers<Compute<T>>& numbers, double* first, double* second);

/// Adds to first[r] and second[r], r < runs, the sums over n numbers from r * stride on. Each run
/// has its numbers.
template <class T>
void SumRuns(ChannelSums sums, const T* a, const T* x, int64_t stride, int64_t runs, int64_t n,
             const SumNumbers<Compute<T>>& numbers, double* first, double* second);

template <class T>
struct MapArrays {
  const T* a;
  const T* x;  ///< ChannelMap::kGradient alone reads it
  T* out;      ///< may be a
  /// Of results past the caches: numbers from each to the one to be asked for; 0: those that
  /// follow.
  int64_t ahead = 0;
  bool ask = false;  ///< for the lines of results through them, ahead of their use
};

/// Maps the numbers [begin, end) of `rows` rows, one each `stride`. Those of number i are at
/// (i / run) % period, where run is 1 or at least kMinRun. With a run of 1 and an end beyond the
/// period, the period is at least a vector, and its first numbers are repeated behind it,
/// kPeriodPad of them.
template <class T>
void MapRows(ChannelMap map, const MapArrays<T>& arrays, int64_t stride, int64_t rows,
             int64_t begin, int64_t end, int64_t run, int64_t period,
             const MapNumbers<Compute<T>>& numbers, bool stream);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_COLUMNS_H_
