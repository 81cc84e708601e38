#ifndef PLANISH_SRC_NORM_CHANNELS_COLUMNS_CPU_H_
#define PLANISH_SRC_NORM_CHANNELS_COLUMNS_CPU_H_

#include <cstdint>
#include <functional>

#include "planish/parallel.h"
#include "src/base/loop.h"
#include "src/norm/channels/columns.h"
#include "src/norm/channels/columns_moments.h"

// What norms over channels have in common: sums over the channels of [batch, channels, spatial]
// numbers, and then a map of these numbers, cut into tiles and split over threads.
namespace planish::internal {

/// Some channels, and what belongs to each: element i of every array is of channel begin + i.
template <class C>
struct ChannelRange {
  int64_t begin = 0, n = 0;
  C* before[kSumNumbers] = {};    // what the sums need
  const double* first = nullptr;  // the sums; null where there are none
  const double* second = nullptr;
  C* numbers[kMapNumbers] = {};  // what the map needs
};

template <class T>
struct ChannelPass {
  using C = Compute<T>;

  ChannelPass(int64_t batch_, int64_t channels_, int64_t spatial_)
      : batch(batch_), channels(channels_), spatial(spatial_) {}

  int64_t batch, channels, spatial;  // all > 0
  const T* a = nullptr;              // [batch, channels, spatial] x in forward, dy in backward
  const T* x = nullptr;              // likewise, of kGradient alone
  T* out = nullptr;                  // likewise; may be a; null without a map
  ChannelSums sums = ChannelSums::kNone;
  ChannelMap map = ChannelMap::kNone;
  /// Writes what the sums of some channels need. Not called without sums.
  std::function<void(const ChannelRange<C>& range)> before;
  /// Takes the sums, and what `before` gave, and writes what the map needs. Called once for each
  /// channel, on any thread, before any number of the channel is mapped.
  std::function<void(const ChannelRange<C>& range)> after;
};

template <class T>
void RunChannels(ChannelPass<T> pass, const ParallelFor& parallel_for);

/// shift[i]: a number near the mean of channel begin + i of pass.a, i < n: the mean of a few of its
/// numbers. Of a constant it is the constant: sums of equal numbers are doubled, which is exact.
template <class T>
void ShiftChannels(const ChannelPass<T>& pass, int64_t begin, int64_t n, Compute<T>* shift);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_COLUMNS_CPU_H_
