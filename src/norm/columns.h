#ifndef PLANISH_SRC_NORM_COLUMNS_H_
#define PLANISH_SRC_NORM_COLUMNS_H_

#include <cstdint>

#include "planish/types.h"
#include "src/norm/moments.h"

// The kernels over channels, for T float, double, bfloat16 and float16, of the instruction set in
// use: sums, and maps whose numbers belong to a column or to a run of columns. They check nothing.
namespace planish::internal {

/// What is summed over a channel, of its numbers a (x in forward, dy in backward).
enum class ChannelSums : uint8_t {
  kNone,
  kMoments,   ///< d and d^2, d = a - shift; numbers of a channel: {shift}
  kGradient,  ///< a and a * xhat; numbers: {mean, rstd, offset} of a RowMap
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

/// Columns that the numbers of MapFlat reach beyond its period: more than a vector has.
inline constexpr int64_t kPeriodPad = 64;

/// Adds to first[c] and second[c] the sums over rows of column c, c < cols. Each column has its
/// numbers.
template <class T>
void SumColumns(ChannelSums sums, const T* a, const T* x, int64_t stride, int64_t rows,
                int64_t cols, const SumNumbers<Compute<T>>& numbers, double* first, double* second);

/// The sums over n numbers that lie side by side, with one set of numbers for all.
template <class T>
RowSums SumRun(ChannelSums sums, const T* a, const T* x, int64_t n,
               const SumNumbers<Compute<T>>& numbers);

template <class T>
struct MapArrays {
  const T* a;
  const T* x;  ///< ChannelMap::kGradient alone reads it
  T* out;      ///< may be a
};

/// Maps `rows` rows of `cols` columns, one each `stride`. With `run` all columns have one set of
/// numbers, else each its own. With `stream` every row of `out` is whole vectors, aligned.
template <class T>
void MapTile(ChannelMap map, const MapArrays<T>& arrays, int64_t stride, int64_t rows, int64_t cols,
             bool run, const MapNumbers<Compute<T>>& numbers, bool stream);

/// Maps the numbers [begin, end) of arrays that are one after the other. Those of number i are at
/// (i / run) % period; run is 1, and the numbers are repeated for kPeriodPad beyond the period, or
/// run is at least kPeriodPad. A period of run 1 that is less than a vector holds all there is.
template <class T>
void MapFlat(ChannelMap map, const MapArrays<T>& arrays, int64_t begin, int64_t end, int64_t run,
             int64_t period, const MapNumbers<Compute<T>>& numbers, bool stream);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_COLUMNS_H_
