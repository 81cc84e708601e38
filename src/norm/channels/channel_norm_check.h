#ifndef PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_CHECK_H_
#define PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_CHECK_H_

#include <cstdint>

#include "planish/channel_norm.h"
#include "src/base/check.h"
#include "src/norm/channels/columns_check.h"
#include "src/norm/recipe.h"
#include "src/norm/recipe_check.h"

// Argument checks of channel_norm.h, for CPU and GPU. Each returns the number of elements.
namespace planish::internal {

template <class T, class P, class Options>
int64_t CheckChannelForward(const char* function, const Recipe& recipe,
                            const ChannelNormForwardArgs<T, P>& args, const Options& options) {
  const int64_t channels = args.channels;
  const int64_t total = CheckChannels<T>(function, args.batch, channels, args.spatial);
  const int64_t positions = args.batch * args.spatial;
  CheckOptions(function, recipe, options, "channels", channels, positions);
  const Array x = VectorArray("x", args.x, total);
  const Array gain = VectorArray("gain", args.gain, channels);
  const Array bias = VectorArray("bias", args.bias, channels);
  Array y = VectorArray("y", args.y, total);
  y.may_be = args.x;
  const Array mean = VectorArray("mean", args.mean, positions);
  const Array mean_lo = VectorArray("mean_lo", args.mean_lo, positions);
  const Array rstd = VectorArray("rstd", args.rstd, positions);
  CheckAffine(function, recipe, {gain, bias});
  CheckNotNull(function, {x, y});
  CheckAligned(function, {x, gain, bias, y, mean, mean_lo, rstd});
  CheckDisjoint(function, {y, mean, mean_lo, rstd}, {x, gain, bias});
  return total;
}

template <class T, class P, class Options>
int64_t CheckChannelBackward(const char* function, const Recipe& recipe,
                             const ChannelNormBackwardArgs<T, P>& args, const Options& options) {
  const int64_t channels = args.channels;
  const int64_t total = CheckChannels<T>(function, args.batch, channels, args.spatial);
  const int64_t positions = args.batch * args.spatial;
  CheckOptions(function, recipe, options, "channels", channels, positions);
  const Array dy = VectorArray("dy", args.dy, total);
  const Array x = VectorArray("x", args.x, total);
  const Array gain = VectorArray("gain", args.gain, channels);
  const Array mean = VectorArray("mean", args.mean, positions);
  const Array mean_lo = VectorArray("mean_lo", args.mean_lo, positions);
  const Array rstd = VectorArray("rstd", args.rstd, positions);
  Array dx = VectorArray("dx", args.dx, total);
  dx.may_be = args.dy;
  const Array dgain = VectorArray("dgain", args.dgain, channels);
  const Array dbias = VectorArray("dbias", args.dbias, channels);
  CheckAffine(function, recipe, {gain, dgain, dbias});
  CheckNotNull(function, {dy});
  CheckSaved(function, recipe, x, mean, mean_lo, rstd);
  CheckAligned(function, {dy, x, gain, mean, mean_lo, rstd, dx, dgain, dbias});
  CheckDisjoint(function, {dx, dgain, dbias}, {dy, x, gain, mean, mean_lo, rstd});
  return total;
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_CHANNEL_NORM_CHECK_H_
