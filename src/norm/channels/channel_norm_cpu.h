#ifndef PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_CPU_H_
#define PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_CPU_H_

#include <cstdint>

#include "planish/parallel.h"
#include "planish/types.h"
#include "src/norm/recipe.h"

// Norms over channels that lie first, cut into tiles of positions and split over threads. For
// arguments that channel_norm.cc has checked; batch, channels and spatial > 0.
namespace planish::internal {

template <class T>
struct ChannelsForward {
  using C = Compute<T>;
  Recipe recipe;
  double eps = 0;
  C scale = 1, slope = 0;  // of Output::kAdaptive
  int64_t batch = 0, channels = 0, spatial = 0;
  const T* x = nullptr;
  const C* gain = nullptr;  // Output::kAffine has both; others have none
  const C* bias = nullptr;
  T* y = nullptr;
  C* mean = nullptr;  // these may be null
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
  const C* gain = nullptr;  // Output::kAffine has it
  const C* mean = nullptr;  // null: 0
  const C* mean_lo = nullptr;
  const C* rstd = nullptr;
  T* dx = nullptr;  // may be null
};

/// dgain and dbias: [channels], written; both null or none.
template <class T>
void BackwardChannels(const ChannelsBackward<T>& args, Compute<T>* dgain, Compute<T>* dbias,
                      const ParallelFor& parallel_for);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_CPU_H_
