#ifndef PLANISH_CHANNEL_NORM_H_
#define PLANISH_CHANNEL_NORM_H_

#include <cstdint>

#include "planish/norm.h"
#include "planish/types.h"
#include "planish/version.h"

// The norms of norm.h over the channels of images and sequences. Element (b, c, s) of x [batch,
// channels, spatial] is at (b * channels + c) * spatial + s. The channels at one position (b, s)
// are normalized as NormForward normalizes a row. No array is transposed. See core.h for the
// contract on lifetime, alignment, aliasing, concurrency and exceptions.
//
// Example: two channels at three positions.
//   const std::vector<float> x = {1, 2, 3, 3, 8, 5};
//   std::vector<float> y(6);
//   planish::ChannelNormForward<float>(
//       planish::Norm::kLayer,
//       {.batch = 1, .channels = 2, .spatial = 3, .x = x.data(), .y = y.data()});
//   for (const float value : y) std::printf("%.2f ", value);
//   // prints -1.00 -1.00 -1.00 1.00 1.00 1.00
namespace planish {
inline namespace PLANISH_API {

/// Arrays of ChannelNormForward; types as in NormForwardArgs.
template <class T, class P = T>
struct ChannelNormForwardArgs {
  int64_t batch = 0;              ///< samples, >= 0
  int64_t channels = 0;           ///< elements that are normalized together, >= 0
  int64_t spatial = 1;            ///< positions of a sample, >= 0
  const T* x = nullptr;           ///< [batch, channels, spatial] input
  const P* gain = nullptr;        ///< [channels], or null for ones
  const P* bias = nullptr;        ///< [channels], or null for zeros
  T* y = nullptr;                 ///< [batch, channels, spatial] output; may be x itself
  Compute<T>* mean = nullptr;     ///< [batch, spatial] mean, rounded; null: not saved
  Compute<T>* mean_lo = nullptr;  ///< [batch, spatial] low-order part of the mean, or null
  Compute<T>* rstd = nullptr;     ///< [batch, spatial] 1 / sqrt(var + eps); null: not saved
};

/// Arrays of ChannelNormBackward. For a loss L, dy = dL/dy and so on.
template <class T, class P = T>
struct ChannelNormBackwardArgs {
  int64_t batch = 0;                    ///< samples, >= 0
  int64_t channels = 0;                 ///< elements that are normalized together, >= 0
  int64_t spatial = 1;                  ///< positions of a sample, >= 0
  const T* dy = nullptr;                ///< [batch, channels, spatial] gradient of the output
  const T* x = nullptr;                 ///< [batch, channels, spatial] input of ChannelNormForward
  const P* gain = nullptr;              ///< [channels], or null for ones, as in ChannelNormForward
  const Compute<T>* mean = nullptr;     ///< [batch, spatial] as saved; ignored by RMSNorm
  const Compute<T>* mean_lo = nullptr;  ///< [batch, spatial] as saved; ignored by RMSNorm
  const Compute<T>* rstd = nullptr;     ///< [batch, spatial] as saved
  T* dx = nullptr;     ///< [batch, channels, spatial] gradient of x, or null; may be dy itself
  P* dgain = nullptr;  ///< [channels] gradient of the gain, or null
  P* dbias = nullptr;  ///< [channels] gradient of the bias, or null
};

/// Normalizes the channels at every position as NormForward normalizes a row.
///
/// The result of a position does not depend on the elements of other positions. Its last bits
/// depend on `channels`, `spatial` and the SIMD target, but not on the number of threads or the
/// machine. NaNs and infinities affect only their own position. With channels = 0 the statistics
/// are NaN.
///
/// Throws ArgumentError as NormForward does. Throws std::bad_alloc if scratch memory cannot be
/// allocated; the outputs are then undefined.
template <class T, class P = T>
void ChannelNormForward(Norm norm, const ChannelNormForwardArgs<T, P>& args,
                        const NormOptions& options = {});

/// Computes the gradients of ChannelNormForward as NormBackward does for rows. The gradients dgain
/// and dbias are sums over the batch and all positions, in an order that depends only on the shape.
/// Throws as NormBackward does, except that after std::bad_alloc the outputs are undefined; dx = dy
/// is allowed.
template <class T, class P = T>
void ChannelNormBackward(Norm norm, const ChannelNormBackwardArgs<T, P>& args,
                         const NormOptions& options = {});

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_CHANNEL_NORM_H_
