#ifndef PLANISH_CHANNEL_NORM_H_
#define PLANISH_CHANNEL_NORM_H_

#include <cstdint>

#include "planish/norm.h"
#include "planish/types.h"

// The norms of norm.h over the channels of images and sequences, which lie first: x is
// [batch, channels, spatial], element (b, c, s) at (b * channels + c) * spatial + s, and the
// numbers of all channels at one (b, s) are normalised as a row of NormForward is. Nothing is
// transposed.
namespace planish {

/// The arrays of ChannelNormForward; types as in NormForwardArgs.
template <class T, class P = T>
struct ChannelNormForwardArgs {
  int64_t batch = 0;              ///< samples, >= 0
  int64_t channels = 0;           ///< numbers that are normalised together, >= 0
  int64_t spatial = 1;            ///< positions in a sample, >= 0
  const T* x = nullptr;           ///< [batch, channels, spatial] the input
  const P* gain = nullptr;        ///< [channels], or null for ones
  const P* bias = nullptr;        ///< [channels], or null for zeros
  T* y = nullptr;                 ///< [batch, channels, spatial] the output; may be x itself
  Compute<T>* mean = nullptr;     ///< [batch, spatial] the mean, rounded; null: not saved
  Compute<T>* mean_lo = nullptr;  ///< [batch, spatial] what `mean` cannot hold; null: not saved
  Compute<T>* rstd = nullptr;     ///< [batch, spatial] 1 / sqrt(var + eps); null: not saved
};

/// The arrays of ChannelNormBackward. L is the loss, dy = dL/dy and so on.
template <class T, class P = T>
struct ChannelNormBackwardArgs {
  int64_t batch = 0;                 ///< samples, >= 0
  int64_t channels = 0;              ///< numbers that are normalised together, >= 0
  int64_t spatial = 1;               ///< positions in a sample, >= 0
  const T* dy = nullptr;             ///< [batch, channels, spatial] the gradient of the output
  const T* x = nullptr;              ///< [batch, channels, spatial] the input of ChannelNormForward
  const P* gain = nullptr;           ///< [channels], or null for ones, as in ChannelNormForward
  const Compute<T>* mean = nullptr;  ///< [batch, spatial] as saved; RMSNorm: not read
  const Compute<T>* mean_lo = nullptr;  ///< [batch, spatial] as saved; RMSNorm: not read
  const Compute<T>* rstd = nullptr;     ///< [batch, spatial] as saved
  T* dx = nullptr;     ///< [batch, channels, spatial] the gradient of x, or null; may be dy itself
  P* dgain = nullptr;  ///< [channels] the gradient of the gain, or null
  P* dbias = nullptr;  ///< [channels] the gradient of the bias, or null
};

/// What NormForward does, of the channels at every position, with its promises: a position's result
/// depends on no other position's numbers, only, in its last bits, on the channels and the spatial
/// size, and NaN and infinities stay there. No channels (channels = 0)
/// have NaN for moments.
///
/// Throws planish::Error as NormForward does; std::bad_alloc when sums find no memory: the
/// outputs are then undefined.
template <class T, class P = T>
void ChannelNormForward(Norm norm, const ChannelNormForwardArgs<T, P>& args,
                        const NormOptions& options = {});

/// What NormBackward does, of the channels at every position: dgain and dbias are sums over the
/// batch and all positions. Throws as NormBackward does (dx = dy is allowed).
template <class T, class P = T>
void ChannelNormBackward(Norm norm, const ChannelNormBackwardArgs<T, P>& args,
                         const NormOptions& options = {});

#define PLANISH_EXTERN(T, P)                                                           \
  extern template void ChannelNormForward(Norm, const ChannelNormForwardArgs<T, P>&,   \
                                          const NormOptions&);                         \
  extern template void ChannelNormBackward(Norm, const ChannelNormBackwardArgs<T, P>&, \
                                           const NormOptions&);
PLANISH_NORM_TYPES(PLANISH_EXTERN)
#undef PLANISH_EXTERN

}  // namespace planish

#endif  // PLANISH_CHANNEL_NORM_H_
