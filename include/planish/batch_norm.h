#ifndef PLANISH_BATCH_NORM_H_
#define PLANISH_BATCH_NORM_H_

#include <cstdint>
#include <optional>

#include "planish/error.h"
#include "planish/norm.h"
#include "planish/parallel.h"
#include "planish/types.h"
#include "planish/version.h"

// Batch normalization (Ioffe & Szegedy 2015; Ba, Kiros & Hinton 2016, Eq. 2). Each channel c of x
// [batch, channels, spatial] is normalized over its n = batch * spatial elements:
//   y = gain[c] * xhat + bias[c],   xhat = (x - mean[c]) * rstd[c],   rstd = 1 / sqrt(var + eps)
// Training uses the mean and variance of these elements, evaluation their running estimates.
// Element (b, c, s) is at (b * channels + c) * spatial + s; spatial = 1 for rows of features. See
// core.h for the contract on lifetime, alignment, aliasing, concurrency and exceptions.
//
// Example: two samples of two channels.
//   const std::vector<float> x = {1, 10, 3, 30};
//   std::vector<float> y(4), mean(2), var(2, 1.f);
//   planish::BatchNormForward<float>({.batch = 2, .channels = 2, .x = x.data(), .y = y.data(),
//                                     .running_mean = mean.data(), .running_var = var.data()});
//   for (const float value : y) std::printf("%.2f ", value);
//   std::printf("%.2f %.2f", mean[0], mean[1]);
//   // prints -1.00 -1.00 1.00 1.00 0.20 2.00
namespace planish {
inline namespace PLANISH_API {

/// Options of the BatchNorm functions.
struct BatchNormOptions {
  double eps = 1e-5;  ///< added to the variance, inside the root; finite, >= 0
  /// Divides by the root of the unbiased variance, sum((x - mean)^2) / (n - 1), instead of the
  /// biased one, / n. Meant for small batches (Ba et al. 6.6: 4 cases). Requires n >= 2.
  bool unbiased = false;
  /// Weight of this batch in the running estimates, in [0, 1]. Without a value the weight is 1 /
  /// (batches + 1), so the estimates are averages over all batches (PyTorch's momentum=None). Only
  /// BatchNormForward reads `momentum` and `batches`.
  std::optional<double> momentum = 0.1;
  int64_t batches = 0;       ///< batches already in the running estimates, >= 0
  ParallelFor parallel_for;  ///< splits large calls over threads; empty: DefaultParallelFor
};

/// Arrays of BatchNormForward; types as in NormForwardArgs.
template <class T, class P = T>
struct BatchNormForwardArgs {
  int64_t batch = 0;                   ///< samples, >= 0
  int64_t channels = 0;                ///< >= 0
  int64_t spatial = 1;                 ///< elements of a channel in a sample, >= 0
  const T* x = nullptr;                ///< [batch, channels, spatial] input
  const P* gain = nullptr;             ///< [channels], or null for ones
  const P* bias = nullptr;             ///< [channels], or null for zeros
  T* y = nullptr;                      ///< [batch, channels, spatial] output; may be x itself
  Compute<T>* mean = nullptr;          ///< [channels] mean, rounded; null: not saved
  Compute<T>* mean_lo = nullptr;       ///< [channels] low-order part of the mean; null: not saved
  Compute<T>* rstd = nullptr;          ///< [channels] 1 / sqrt(var + eps); null: not saved
  Compute<T>* running_mean = nullptr;  ///< [channels] updated in place, or null
  Compute<T>* running_var = nullptr;   ///< [channels] updated, unbiased; or null
};

/// Arrays of BatchNormBackward. For a loss L, dy = dL/dy and so on.
template <class T, class P = T>
struct BatchNormBackwardArgs {
  int64_t batch = 0;                    ///< samples, >= 0
  int64_t channels = 0;                 ///< >= 0
  int64_t spatial = 1;                  ///< elements of a channel in a sample, >= 0
  const T* dy = nullptr;                ///< [batch, channels, spatial] gradient of the output
  const T* x = nullptr;                 ///< [batch, channels, spatial] input of BatchNormForward
  const P* gain = nullptr;              ///< [channels], or null for ones, as in the forward call
  const Compute<T>* mean = nullptr;     ///< [channels] as saved by BatchNormForward
  const Compute<T>* mean_lo = nullptr;  ///< [channels] as saved by BatchNormForward
  const Compute<T>* rstd = nullptr;     ///< [channels] as saved by BatchNormForward
  T* dx = nullptr;     ///< [batch, channels, spatial] gradient of x, or null; may be dy itself
  P* dgain = nullptr;  ///< [channels] gradient of the gain, or null
  P* dbias = nullptr;  ///< [channels] gradient of the bias, or null
};

/// Arrays of BatchNormEvaluate.
template <class T, class P = T>
struct BatchNormEvaluateArgs {
  int64_t batch = 0;                         ///< samples, >= 0
  int64_t channels = 0;                      ///< >= 0
  int64_t spatial = 1;                       ///< elements of a channel in a sample, >= 0
  const T* x = nullptr;                      ///< [batch, channels, spatial] input
  const P* gain = nullptr;                   ///< [channels], or null for ones
  const P* bias = nullptr;                   ///< [channels], or null for zeros
  const Compute<T>* running_mean = nullptr;  ///< [channels]
  const Compute<T>* running_var = nullptr;   ///< [channels]
  T* y = nullptr;                            ///< [batch, channels, spatial] output; may be x itself
};

/// Arrays of BatchNormEvaluateBackward.
template <class T, class P = T>
struct BatchNormEvaluateBackwardArgs {
  int64_t batch = 0;                         ///< samples, >= 0
  int64_t channels = 0;                      ///< >= 0
  int64_t spatial = 1;                       ///< elements of a channel in a sample, >= 0
  const T* dy = nullptr;                     ///< [batch, channels, spatial] gradient of the output
  const T* x = nullptr;                      ///< [batch, channels, spatial]; only dgain needs it
  const P* gain = nullptr;                   ///< [channels], or null for ones
  const Compute<T>* running_mean = nullptr;  ///< [channels]; only dgain needs it
  const Compute<T>* running_var = nullptr;   ///< [channels]
  T* dx = nullptr;     ///< [batch, channels, spatial] gradient of x, or null; may be dy itself
  P* dgain = nullptr;  ///< [channels] gradient of the gain, or null
  P* dbias = nullptr;  ///< [channels] gradient of the bias, or null
};

/// Normalizes every channel of `args.x` by the statistics of this batch. Saves the statistics that
/// BatchNormBackward needs, and updates the running estimates, in the arrays given for them:
///
///   running_mean = (1 - momentum) * running_mean + momentum * mean
///   running_var  = (1 - momentum) * running_var + momentum * sum((x - mean)^2) / (n - 1)
///
/// The running variance is always the unbiased one, as in PyTorch, whatever `options.unbiased` is.
///
/// The result of a channel does not depend on the elements of other channels. Its last bits depend
/// on the shape and the SIMD target, but not on the number of threads or the machine. Statistics
/// are accurate at any mean. A channel with a NaN or an infinity gives NaN, also in its running
/// estimates.
///
/// A constant channel gives the bias, or NaN with eps = 0. With n = 1 every channel is constant;
/// PyTorch rejects n = 1, but here only unbiased variances need n >= 2. With n = 0 the statistics
/// are NaN and the running estimates stay unchanged.
///
/// Throws ArgumentError if a size is negative or too large, eps, momentum or batches is out of
/// range, or n = 1 with `unbiased` or `running_var`. Also if a required array is null, an array is
/// misaligned, or an output overlaps another array; y = x is allowed. Throws std::bad_alloc if
/// scratch memory cannot be allocated; the outputs are then undefined.
template <class T, class P = T>
void BatchNormForward(const BatchNormForwardArgs<T, P>& args, const BatchNormOptions& options = {});

/// Computes the requested gradients of BatchNormForward, those whose arrays are not null, and
/// overwrites these arrays. Sums run over the n elements of a channel; m = n - 1 with
/// `options.unbiased`, else n:
///
///   dbias = sum(dy)
///   dgain = sum(dy * xhat)
///   dx    = gain * rstd * (dy - dbias / n - xhat * dgain / m)
///
/// The order of summation depends only on the shape. So the gradients have the same bits for any
/// number of threads, and on every machine with the same SIMD target. Throws as BatchNormForward
/// does.
template <class T, class P = T>
void BatchNormBackward(const BatchNormBackwardArgs<T, P>& args,
                       const BatchNormOptions& options = {});

/// Computes y = gain * (x - running_mean) / sqrt(running_var + eps) + bias for every channel. Reads
/// only eps and parallel_for of `options`. A negative running_var + eps gives NaN. Throws as
/// BatchNormForward does.
template <class T, class P = T>
void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>& args,
                       const BatchNormOptions& options = {});

/// Computes the requested gradients of BatchNormEvaluate. The running estimates are constants:
///
///   dbias = sum(dy)
///   dgain = sum(dy * xhat)
///   dx    = gain * rstd * dy,   rstd = 1 / sqrt(running_var + eps)
///
/// Determinism and exceptions are those of BatchNormBackward.
template <class T, class P = T>
void BatchNormEvaluateBackward(const BatchNormEvaluateBackwardArgs<T, P>& args,
                               const BatchNormOptions& options = {});

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_BATCH_NORM_H_
