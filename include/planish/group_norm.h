#ifndef PLANISH_GROUP_NORM_H_
#define PLANISH_GROUP_NORM_H_

#include <cstdint>

#include "planish/error.h"
#include "planish/norm.h"
#include "planish/parallel.h"
#include "planish/types.h"
#include "planish/version.h"

// Group normalization (Wu & He 2018) of x [batch, channels, spatial]. The channels of a sample are
// divided into groups of D = channels / groups adjacent ones. Each group of a sample is normalized
// over its D * spatial elements:
//   y = gain[c] * xhat + bias[c],   xhat = (x - mean) * rstd,   rstd = 1 / sqrt(var + eps)
// with the biased variance. With groups = channels this is instance normalization (Ulyanov, Vedaldi
// & Lempitsky 2016). See core.h for the contract on lifetime, alignment, aliasing, concurrency and
// exceptions.
//
// Example: two groups of two channels with one position.
//   const std::vector<float> x = {1, 3, 10, 30};
//   std::vector<float> y(4);
//   planish::GroupNormForward<float>(
//       {.batch = 1, .groups = 2, .channels = 4, .x = x.data(), .y = y.data()});
//   for (const float value : y) std::printf("%.2f ", value);
//   // prints -1.00 1.00 -1.00 1.00
namespace planish {
inline namespace PLANISH_API {

/// Options of GroupNormForward and GroupNormBackward.
struct GroupNormOptions {
  double eps = 1e-5;  ///< added to the variance, inside the root; finite, >= 0
  /// Set if the channels of a position are adjacent: x, y, dy and dx are [batch, spatial,
  /// channels].
  bool channels_last = false;
  ParallelFor parallel_for;  ///< splits large calls over threads; empty: DefaultParallelFor
};

/// Arrays of GroupNormForward; types as in NormForwardArgs.
template <class T, class P = T>
struct GroupNormForwardArgs {
  int64_t batch = 0;              ///< samples, >= 0
  int64_t groups = 1;             ///< groups of a sample, >= 1; divides channels
  int64_t channels = 0;           ///< >= 0
  int64_t spatial = 1;            ///< elements of a channel in a sample, >= 0
  const T* x = nullptr;           ///< [batch, channels, spatial] input
  const P* gain = nullptr;        ///< [channels], or null for ones
  const P* bias = nullptr;        ///< [channels], or null for zeros
  T* y = nullptr;                 ///< [batch, channels, spatial] output; may be x itself
  Compute<T>* mean = nullptr;     ///< [batch, groups] mean, rounded; null: not saved
  Compute<T>* mean_lo = nullptr;  ///< [batch, groups] low-order part of the mean, or null
  Compute<T>* rstd = nullptr;     ///< [batch, groups] 1 / sqrt(var + eps); null: not saved
};

/// Arrays of GroupNormBackward. For a loss L, dy = dL/dy and so on.
template <class T, class P = T>
struct GroupNormBackwardArgs {
  int64_t batch = 0;                    ///< samples, >= 0
  int64_t groups = 1;                   ///< groups of a sample, >= 1; divides channels
  int64_t channels = 0;                 ///< >= 0
  int64_t spatial = 1;                  ///< elements of a channel in a sample, >= 0
  const T* dy = nullptr;                ///< [batch, channels, spatial] gradient of the output
  const T* x = nullptr;                 ///< [batch, channels, spatial] input of GroupNormForward
  const P* gain = nullptr;              ///< [channels], or null for ones, as in GroupNormForward
  const Compute<T>* mean = nullptr;     ///< [batch, groups] as saved
  const Compute<T>* mean_lo = nullptr;  ///< [batch, groups] as saved
  const Compute<T>* rstd = nullptr;     ///< [batch, groups] as saved
  T* dx = nullptr;     ///< [batch, channels, spatial] gradient of x, or null; may be dy itself
  P* dgain = nullptr;  ///< [channels] gradient of the gain, or null
  P* dbias = nullptr;  ///< [channels] gradient of the bias, or null
};

/// Normalizes every group of every sample by its own statistics, and saves those that
/// GroupNormBackward needs in the arrays given for them.
///
/// The result of a group does not depend on the elements of other groups. Its last bits depend on
/// the shape, the layout and the SIMD target, but not on the number of threads or the machine.
/// Statistics are accurate at any mean. A group with a NaN or an infinity gives NaN. A constant
/// group gives the bias, or NaN with eps = 0. Groups without elements have NaN as statistics.
///
/// Throws ArgumentError if a size is negative or too large, groups does not divide channels, or eps
/// is out of range. Also if a required array is null, an array is misaligned, or an output overlaps
/// another array; y = x is allowed. Throws std::bad_alloc if scratch memory cannot be allocated;
/// the outputs are then undefined.
template <class T, class P = T>
void GroupNormForward(const GroupNormForwardArgs<T, P>& args, const GroupNormOptions& options = {});

/// Computes the requested gradients of GroupNormForward, those whose arrays are not null, and
/// overwrites these arrays. With g = gain[c] * dy, and means over a group:
///
///   dx    = rstd * (g - mean(g) - xhat * mean(g * xhat))
///   dgain = sum(dy * xhat) and dbias = sum(dy), over samples and positions
///
/// The order of summation depends only on the shape and the layout. Throws as
/// GroupNormForward does; dx = dy is allowed.
template <class T, class P = T>
void GroupNormBackward(const GroupNormBackwardArgs<T, P>& args,
                       const GroupNormOptions& options = {});

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_GROUP_NORM_H_
