#ifndef PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_CHECK_H_
#define PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_CHECK_H_

#include <cstdint>
#include <string>

#include "planish/batch_norm.h"
#include "src/base/check.h"
#include "src/norm/channels/columns_check.h"

// Argument checks of batch_norm.h, for CPU and GPU. Each returns the number of elements.
namespace planish::internal {

/// Checks and returns the weight of a batch in the running estimates.
template <class Options>
double CheckedMomentum(const char* function, const Options& options) {
  if (options.batches < 0) {
    Fail(function, "batches", "be at least 0", std::to_string(options.batches));
  }
  if (!options.momentum) return 1 / (static_cast<double>(options.batches) + 1);
  if (!(*options.momentum >= 0 && *options.momentum <= 1)) {
    Fail(function, "momentum", "be in [0, 1]", std::to_string(*options.momentum));
  }
  return *options.momentum;
}

/// Checks that n is large enough for an unbiased variance if `needed`.
inline void CheckUnbiased(const char* function, bool needed, int64_t n) {
  if (needed && n == 1) {
    Fail(function, "batch * spatial", "be at least 2 for an unbiased variance", "1");
  }
}

template <class T, class P, class Options>
int64_t CheckBatchForward(const char* function, const BatchNormForwardArgs<T, P>& args,
                          const Options& options) {
  const int64_t channels = args.channels;
  const int64_t total = CheckChannels<T>(function, args.batch, channels, args.spatial);
  CheckEps(function, options.eps);
  CheckedMomentum(function, options);
  CheckUnbiased(function, (options.unbiased || args.running_var != nullptr) && channels > 0,
                args.batch * args.spatial);
  const Array x = VectorArray("x", args.x, total);
  const Array gain = VectorArray("gain", args.gain, channels);
  const Array bias = VectorArray("bias", args.bias, channels);
  Array y = VectorArray("y", args.y, total);
  y.may_be = args.x;
  const Array mean = VectorArray("mean", args.mean, channels);
  const Array mean_lo = VectorArray("mean_lo", args.mean_lo, channels);
  const Array rstd = VectorArray("rstd", args.rstd, channels);
  const Array running_mean = VectorArray("running_mean", args.running_mean, channels);
  const Array running_var = VectorArray("running_var", args.running_var, channels);
  CheckNotNull(function, {x, y});
  CheckAligned(function, {x, gain, bias, y, mean, mean_lo, rstd, running_mean, running_var});
  CheckDisjoint(function, {y, mean, mean_lo, rstd, running_mean, running_var}, {x, gain, bias});
  return total;
}

template <class T, class P, class Options>
int64_t CheckBatchBackward(const char* function, const BatchNormBackwardArgs<T, P>& args,
                           const Options& options) {
  const int64_t channels = args.channels;
  const int64_t total = CheckChannels<T>(function, args.batch, channels, args.spatial);
  CheckUnbiased(function, options.unbiased && channels > 0, args.batch * args.spatial);
  const Array dy = VectorArray("dy", args.dy, total);
  const Array x = VectorArray("x", args.x, total);
  const Array gain = VectorArray("gain", args.gain, channels);
  const Array mean = VectorArray("mean", args.mean, channels);
  const Array mean_lo = VectorArray("mean_lo", args.mean_lo, channels);
  const Array rstd = VectorArray("rstd", args.rstd, channels);
  Array dx = VectorArray("dx", args.dx, total);
  dx.may_be = args.dy;
  const Array dgain = VectorArray("dgain", args.dgain, channels);
  const Array dbias = VectorArray("dbias", args.dbias, channels);
  CheckNotNull(function, {dy, x, mean, mean_lo, rstd});
  CheckAligned(function, {dy, x, gain, mean, mean_lo, rstd, dx, dgain, dbias});
  CheckDisjoint(function, {dx, dgain, dbias}, {dy, x, gain, mean, mean_lo, rstd});
  return total;
}

template <class T, class P, class Options>
int64_t CheckBatchEvaluate(const char* function, const BatchNormEvaluateArgs<T, P>& args,
                           const Options& options) {
  const int64_t channels = args.channels;
  const int64_t total = CheckChannels<T>(function, args.batch, channels, args.spatial);
  CheckEps(function, options.eps);
  const Array x = VectorArray("x", args.x, total);
  const Array gain = VectorArray("gain", args.gain, channels);
  const Array bias = VectorArray("bias", args.bias, channels);
  const Array running_mean = VectorArray("running_mean", args.running_mean, channels);
  const Array running_var = VectorArray("running_var", args.running_var, channels);
  Array y = VectorArray("y", args.y, total);
  y.may_be = args.x;
  CheckNotNull(function, {x, running_mean, running_var, y});
  CheckAligned(function, {x, gain, bias, running_mean, running_var, y});
  CheckDisjoint(function, {y}, {x, gain, bias, running_mean, running_var});
  return total;
}

template <class T, class P, class Options>
int64_t CheckBatchEvaluateBackward(const char* function,
                                   const BatchNormEvaluateBackwardArgs<T, P>& args,
                                   const Options& options) {
  const int64_t channels = args.channels;
  const int64_t total = CheckChannels<T>(function, args.batch, channels, args.spatial);
  CheckEps(function, options.eps);
  const Array dy = VectorArray("dy", args.dy, total);
  const Array x = VectorArray("x", args.x, total);
  const Array gain = VectorArray("gain", args.gain, channels);
  const Array running_mean = VectorArray("running_mean", args.running_mean, channels);
  const Array running_var = VectorArray("running_var", args.running_var, channels);
  Array dx = VectorArray("dx", args.dx, total);
  dx.may_be = args.dy;
  const Array dgain = VectorArray("dgain", args.dgain, channels);
  const Array dbias = VectorArray("dbias", args.dbias, channels);
  CheckNotNull(function, {dy, running_var});
  if (args.dgain) CheckNotNull(function, {x, running_mean});
  CheckAligned(function, {dy, x, gain, running_mean, running_var, dx, dgain, dbias});
  CheckDisjoint(function, {dx, dgain, dbias}, {dy, x, gain, running_mean, running_var});
  return total;
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNELS_BATCH_NORM_CHECK_H_
