#ifndef PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_CPU_H_
#define PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_CPU_H_

#include "planish/channel_norm.h"
#include "planish/parallel.h"
#include "planish/types.h"
#include "src/norm/recipe.h"

// Norms over channels, tiled by position and split over threads. Arguments are checked by
// channel_norm.cc; batch, channels and spatial are > 0.
namespace planish::internal {

/// A call of ChannelNormForward. gain and bias are both set for Output::kAffine, else null.
template <class T>
struct ChannelsForward : ChannelNormForwardArgs<T, Compute<T>>, NormSettings<Compute<T>> {};

template <class T>
void ForwardChannels(const ChannelsForward<T>& args, const ParallelFor& parallel_for);

/// A call of ChannelNormBackward. gain is set for Output::kAffine; mean and mean_lo can be null,
/// for 0. Either both dgain and dbias are null or none.
template <class T>
struct ChannelsBackward : ChannelNormBackwardArgs<T, Compute<T>>, NormSettings<Compute<T>> {};

template <class T>
void BackwardChannels(const ChannelsBackward<T>& args, const ParallelFor& parallel_for);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_CPU_H_
