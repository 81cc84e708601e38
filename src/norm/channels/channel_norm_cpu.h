#ifndef PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_CPU_H_
#define PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_CPU_H_

#include <cstdint>

#include "planish/parallel.h"
#include "planish/types.h"
#include "src/norm/recipe.h"

// Norms over channels, tiled by position and split over threads. Arguments are checked by
// channel_norm.cc; batch, channels and spatial are > 0.
namespace planish::internal {

template <class T>
struct ChannelsForward {
  using C = Compute<T>;
  Recipe recipe;
  double eps = 0;
  C scale = 1, slope = 0;  // for Output::kAdaptive
  int64_t batch = 0, channels = 0, spatial = 0;
  const T* x = nullptr;
  const C* gain = nullptr;  // both set for Output::kAffine, else null
  const C* bias = nullptr;
  T* y = nullptr;
  C* mean = nullptr;  // may be null, like the next two
  C* mean_lo = nullptr;
  C* rstd = nullptr;
};

template <class T>
void ForwardChannels(const ChannelsForward<T>& args, const ParallelFor& parallel_for);

template <class T>
struct ChannelsBackward {
  using C = Compute<T>;
  Recipe recipe;
  double eps = 0;
  C scale = 1, slope = 0;
  int64_t batch = 0, channels = 0, spatial = 0;
  const T* dy = nullptr;
  const T* x = nullptr;
  const C* gain = nullptr;  // set for Output::kAffine
  const C* mean = nullptr;  // null: 0
  const C* mean_lo = nullptr;
  const C* rstd = nullptr;
  T* dx = nullptr;  // may be null
};

/// Writes dgain and dbias [channels]. Either both are null or none.
template <class T>
void BackwardChannels(const ChannelsBackward<T>& args, Compute<T>* dgain, Compute<T>* dbias,
                      const ParallelFor& parallel_for);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_CPU_H_
