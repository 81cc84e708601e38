#ifndef PLANISH_SRC_NORM_COLUMNS_CPU_H_
#define PLANISH_SRC_NORM_COLUMNS_CPU_H_

#include <cstdint>
#include <functional>

#include "planish/parallel.h"
#include "src/base/loop.h"
#include "src/norm/columns.h"
#include "src/norm/columns_moments.h"

// What norms over channels have in common: sums over the channels of [batch, channels, spatial]
// numbers, and then a map of these numbers, cut into tiles and split over threads.
namespace planish::internal {

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
  /// Writes the kSumNumbers numbers that the sums of channel c need. Not called without sums.
  std::function<void(int64_t c, C* numbers)> before;
  /// Takes the sums of channel c, and the numbers that `before` gave, and writes the kMapNumbers
  /// numbers of the map. Called once for each channel, on any thread, before any number of the
  /// channel is mapped.
  std::function<void(int64_t c, const C* before, const RowSums& sums, C* numbers)> after;
};

template <class T>
void RunChannels(ChannelPass<T> pass, const ParallelFor& parallel_for);

/// A number near the mean of channel c of a: the mean of a few of its numbers. Of a constant it is
/// the constant: sums of equal numbers are doubled, which is exact.
template <class T>
Compute<T> ShiftNear(const ChannelPass<T>& pass, int64_t c) {
  constexpr int64_t kSamples = 8;
  double samples[kSamples];
  for (int64_t i = 0; i < kSamples; ++i) {
    const int64_t b = (pass.batch - 1) * i / (kSamples - 1);
    const int64_t s = (pass.spatial - 1) * i / (kSamples - 1);
    samples[i] = ToDouble(pass.a[(b * pass.channels + c) * pass.spatial + s]);
  }
  for (int64_t half = kSamples / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) samples[i] += samples[i + half];
  }
  return static_cast<Compute<T>>(samples[0] / static_cast<double>(kSamples));
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_COLUMNS_CPU_H_
