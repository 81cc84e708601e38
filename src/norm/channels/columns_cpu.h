#ifndef PLANISH_SRC_NORM_CHANNELS_COLUMNS_CPU_H_
#define PLANISH_SRC_NORM_CHANNELS_COLUMNS_CPU_H_

#include <cstdint>
#include <functional>

#include "planish/parallel.h"
#include "src/base/loop.h"
#include "src/norm/channel_pass.h"
#include "src/norm/channels/columns.h"
#include "src/norm/channels/columns_statistics.h"

// Common part of the norms over channels: sums over the channels of an array, then an elementwise
// operation, tiled and split over threads. Arrays are [batch, channels, spatial].
namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// Channels whose sums are finished at a time. Their sums are on the stack.
inline constexpr int64_t kChannelsAtOnce = 256;

/// Elements of a channel or group whose mean is the shift of its sums.
inline constexpr int64_t kShiftSamples = 8;

// --- End of tuning constants ---

/// Channels [begin, begin + n) and their parameters. Element i of every array belongs to channel
/// begin + i, or with sums of several channels to sum begin / sum_channels + i.
template <class C>
struct ChannelRange {
  int64_t begin = 0, n = 0;
  C* before[kMaxSumParameters] = {};  // inputs of the sums, one for each sum
  const double* first = nullptr;      // the sums; null without sums
  const double* second = nullptr;
  C* parameters[kMaxMapParameters] = {};  // of the elementwise operation, one for each channel
};

/// A pass over arrays with all sizes > 0.
template <class T>
struct ChannelPass : ChannelArrays<T> {
  using C = Compute<T>;

  ChannelSums sums = ChannelSums::kNone;
  ChannelMap map = ChannelMap::kNone;
  /// Independent arrays of these sizes, one after another; 1 unless spatial is. Channel c of plane
  /// p is channel p * channels + c of the ranges.
  int64_t planes = 1;
  /// Adjacent channels that share statistics; divides the channels. Ranges consist of whole groups.
  int64_t group = 1;
  /// Adjacent channels with one sum: 1, or `group` if batch is 1 and spatial at least min_run.
  int64_t sum_channels = 1;
  /// Spatial size from which elements are runs; 0: that of batch norm. At least kMinSampleRun.
  int64_t min_run = 0;
  /// Columns to reach by placing several samples side by side; 0: those of batch norm.
  int64_t min_columns = 0;
  int64_t first_channel = 0;  ///< added to the channels of the ranges
  /// Computes the inputs of the sums. Not called without sums.
  std::function<void(const ChannelRange<C>& range)> before = {};
  /// Computes the parameters of the elementwise operation from the sums and the results of
  /// `before`. Called once for each channel, on any thread, before any output of the channel.
  std::function<void(const ChannelRange<C>& range)> after = {};
};

/// Returns the number of blocks of `rows` rows whose columns are summed separately. Depends on the
/// shape only, and so do the bits of the sums, whether columns are tiled or not.
int64_t RowBlocks(int64_t rows, int64_t width);

template <class T>
void RunChannels(ChannelPass<T> pass, const ParallelFor& parallel_for);

/// Returns the mean of kShiftSamples of `length` elements; at(i) is element i as a double. Exact
/// for equal elements, because sums of equal values double.
template <class At>
double MeanOfSamples(int64_t length, const At& at) {
  double samples[kShiftSamples];
  for (int64_t i = 0; i < kShiftSamples; ++i)
    samples[i] = at((length - 1) * i / (kShiftSamples - 1));
  for (int64_t half = kShiftSamples / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) samples[i] += samples[i + half];
  }
  return samples[0] / static_cast<double>(kShiftSamples);
}

/// Computes shift[i], i < n, an estimate of the mean of channel begin + i of pass.a: the mean of a
/// few elements. Exact for a constant channel, because sums of equal values double.
template <class T>
void ShiftChannels(const ChannelPass<T>& pass, int64_t begin, int64_t n, Compute<T>* shift);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_COLUMNS_CPU_H_
