#ifndef PLANISH_SRC_NORM_CHANNEL_PASS_H_
#define PLANISH_SRC_NORM_CHANNEL_PASS_H_

#include <cstdint>

#include "planish/batch_norm.h"
#include "planish/group_norm.h"
#include "planish/online_norm.h"
#include "planish/pointwise_norm.h"
#include "planish/weight_norm.h"

// The norms over channels as passes over [batch, channels, spatial] arrays, for CPU and GPU. A pass
// sums over each channel, then computes each output element from one input element and parameters
// of its channel. This elementwise operation is the "map" of the pass.
namespace planish::internal {

/// Arrays of a pass.
template <class T>
struct ChannelArrays {
  int64_t batch = 0, channels = 0, spatial = 0;
  const T* a = nullptr;  ///< x in forward, dy in backward
  const T* x = nullptr;  ///< for gradients; null if it is not read
  T* out = nullptr;      ///< may be a; null: no elementwise operation
};

template <class T, class P>
ChannelArrays<T> ArraysOf(const BatchNormForwardArgs<T, P>& args) {
  return {args.batch, args.channels, args.spatial, args.x, nullptr, args.y};
}
template <class T, class P>
ChannelArrays<T> ArraysOf(const BatchNormBackwardArgs<T, P>& args) {
  return {args.batch, args.channels, args.spatial, args.dy, args.x, args.dx};
}
template <class T, class P>
ChannelArrays<T> ArraysOf(const BatchNormEvaluateArgs<T, P>& args) {
  return {args.batch, args.channels, args.spatial, args.x, nullptr, args.y};
}
template <class T, class P>
ChannelArrays<T> ArraysOf(const BatchNormEvaluateBackwardArgs<T, P>& args) {
  const T* x = args.dgain != nullptr ? args.x : nullptr;
  return {args.batch, args.channels, args.spatial, args.dy, x, args.dx};
}
// A row of weights, or a case of online normalization, is a channel of one sample.
template <class T, class P>
ChannelArrays<T> ArraysOf(const WeightNormForwardArgs<T, P>& args) {
  return {1, args.rows, args.cols, args.v, nullptr, args.w};
}
template <class T, class P>
ChannelArrays<T> ArraysOf(const WeightNormBackwardArgs<T, P>& args) {
  return {1, args.rows, args.cols, args.dw, args.v, args.dv};
}
template <class T, class P>
ChannelArrays<T> ArraysOf(const OnlineNormForwardArgs<T, P>& args) {
  return {1, args.rows, args.cols, args.x, nullptr, args.y};
}
template <class T, class P>
ChannelArrays<T> ArraysOf(const OnlineNormBackwardArgs<T, P>& args) {
  return {1, args.rows, args.cols, args.dy, args.x, args.dx};
}
// Of group norm: the channels of all samples, whose sums are those of single channels or of groups.
template <class T, class P>
ChannelArrays<T> ArraysOf(const GroupNormForwardArgs<T, P>& args) {
  return {1, args.batch * args.channels, args.spatial, args.x, nullptr, args.y};
}
template <class T, class P>
ChannelArrays<T> ArraysOf(const GroupNormBackwardArgs<T, P>& args) {
  return {1, args.batch * args.channels, args.spatial, args.dy, args.x, args.dx};
}
// A column of a pointwise function is a channel with one element in each sample.
template <class T, class P>
ChannelArrays<T> ArraysOf(const PointwiseNormForwardArgs<T, P>& args) {
  return {args.rows, args.cols, 1, args.x, nullptr, args.y};
}
template <class T, class P>
ChannelArrays<T> ArraysOf(const PointwiseNormBackwardArgs<T, P>& args) {
  return {args.rows, args.cols, 1, args.dy, args.x, args.dx};
}

/// Sums over the elements `a` of a channel.
enum class ChannelSums : uint8_t {
  kNone,
  kStatistics,  ///< d and d^2 with d = a - shift; parameters: {shift}
  kGradient,    ///< a and a * xhat, xhat = (x - mean) * rstd + offset; parameters: {mean, rstd,
                ///< offset}
  // On a GPU only:
  kSquares,              ///< a^2; for double in two parts, large elements and others
  kGradientOfRows,       ///< kGradient of gain * a; the gain depends on the place in the channel
  kGradientOfPositions,  ///< kGradient; the parameters depend on sample and place
  kPointwise,            ///< a and a * f(z), z = alpha * x + shift; f, alpha and shift of the call
  kPointwiseSlope,       ///< a * f'(z) * x and a * f'(z)
};

/// Elementwise operation on the elements `a` of a channel.
enum class ChannelMap : uint8_t {
  kNone,
  kNormalize,  ///< (a - mean) * scale + bias; parameters: {mean, scale, bias}
  kGradient,   ///< ((a - mean_g) - xhat * mean_g_xhat) * scale; parameters: {mean, rstd, offset,
               ///< mean_g, mean_g_xhat, scale}
  kScale,      ///< a * scale; parameters: {scale}
  kTanh,       ///< tanh(alpha * a + shift) * gain + bias; parameters: {alpha, shift, gain, bias}
  kErf,        ///< kTanh with erf
  kGroupGradient,  ///< ((gain * a - shift) - (x - mean) * slope) * rstd; parameters: {mean, rstd,
                   ///< shift = mean_g + offset * mean_g_xhat, slope = mean_g_xhat * rstd, gain}
  // On a GPU only:
  kNormalizeRows,   ///< xhat * gain + bias, those of the place in the channel; parameters: {mean,
                    ///< rstd, offset}
  kGradientOfRows,  ///< kGradient of gain * a with scale = rstd; parameters as there, without scale
  kPointwiseSlope,  ///< a * f'(alpha * x + shift) * scale; parameters: {alpha, shift, scale}
};

inline constexpr int kMaxSumParameters = 3, kMaxMapParameters = 6;  // upper bounds

/// Returns whether `map` is a gradient of xhat, which reads x.
constexpr bool IsGradient(ChannelMap map) {
  return map == ChannelMap::kGradient || map == ChannelMap::kGroupGradient;
}

/// Returns whether `map` is a function of planish::Pointwise. Channels then have one position.
constexpr bool IsPointwise(ChannelMap map) {
  return map == ChannelMap::kTanh || map == ChannelMap::kErf;
}
constexpr ChannelMap MapOf(Pointwise function) {
  return function == Pointwise::kTanh ? ChannelMap::kTanh : ChannelMap::kErf;
}

/// Return the number of parameters of a channel.
constexpr int ParameterCount(ChannelSums sums) {
  return sums == ChannelSums::kNone ? 0 : sums == ChannelSums::kStatistics ? 1 : 3;
}
constexpr int ParameterCount(ChannelMap map) {
  return map == ChannelMap::kNone                                                  ? 0
         : map == ChannelMap::kScale                                               ? 1
         : map == ChannelMap::kGradient                                            ? 6
         : IsPointwise(map)                                                        ? 4
         : map == ChannelMap::kGroupGradient || map == ChannelMap::kGradientOfRows ? 5
                                                                                   : 3;
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_CHANNEL_PASS_H_
