#ifndef PLANISH_SRC_NORM_CHANNELS_COLUMNS_H_
#define PLANISH_SRC_NORM_CHANNELS_COLUMNS_H_

#include <cstdint>

#include "planish/types.h"
#include "src/norm/channel_pass.h"

// Channel kernels for T float, double, bfloat16 and float16, with the SIMD target in use. They
// compute sums, and elementwise operations with one set of parameters for each column or run of
// columns. Arguments are not checked.
namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Rows that a column's sum covers in C before it continues in double. Determines the order of
/// sums.
inline constexpr int64_t kSumRows = 8;

/// Minimum rows and elements of a block of rows whose columns are summed separately, and limit on
/// the blocks. Determine the order of sums.
inline constexpr int64_t kMinBlockRows = 128, kMinBlockElements = int64_t{1} << 16;
inline constexpr int64_t kMaxRowBlocks = 64;

/// Minimum length of a run. Shorter runs are columns with their own parameters.
inline constexpr int64_t kMinRun = 32;

/// Minimum length of a run in a pass over one sample, whose columns would share no parameters. At
/// least the largest number of lanes.
inline constexpr int64_t kMinSampleRun = 16;

// --- End of tuning constants ---

/// Parameters of a channel, or arrays of them.
template <class C>
struct SumParameters {
  const C* at[kMaxSumParameters];
};
template <class C>
struct MapParameters {
  const C* at[kMaxMapParameters];
};

/// Padding larger than any vector.
inline constexpr int64_t kPeriodPad = 64;

/// Estimates the mean of each column by the mean of a few elements. Exact for constant columns.
template <class T>
void ShiftColumns(const T* x, int64_t stride, int64_t rows, int64_t cols, Compute<T>* shift);

/// Adds the sums over rows of column c to first[c] and second[c], for c < cols. Each column has its
/// own parameters.
template <class T>
void SumColumns(ChannelSums sums, const T* a, const T* x, int64_t stride, int64_t rows,
                int64_t cols, const SumParameters<Compute<T>>& parameters, double* first,
                double* second);

/// Adds the sums over the n elements from r * stride on to first[r] and second[r], for r < runs.
/// Each run has its own parameters.
template <class T>
void SumRuns(ChannelSums sums, const T* a, const T* x, int64_t stride, int64_t runs, int64_t n,
             const SumParameters<Compute<T>>& parameters, double* first, double* second);

template <class T>
struct MapArrays {
  const T* a;
  const T* x;  ///< read by gradients only
  T* out;      ///< may be a
  /// With non-temporal stores: distance in elements to prefetch; 0: the following elements.
  int64_t ahead = 0;
  bool prefetch_output = false;  ///< with ordinary stores: prefetches the lines of `out`
};

/// Applies `map` to elements [begin, end) of `rows` rows, `stride` elements apart. The parameters
/// of element i are at (i / run) % period; run is 1 or at least
/// kMinSampleRun. If run is 1 and end exceeds the period, the period is at least a vector, and its
/// first kPeriodPad parameters are repeated after it.
template <class T>
void MapRows(ChannelMap map, const MapArrays<T>& arrays, int64_t stride, int64_t rows,
             int64_t begin, int64_t end, int64_t run, int64_t period,
             const MapParameters<Compute<T>>& parameters, bool use_nt_stores);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_COLUMNS_H_
