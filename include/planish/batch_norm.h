#ifndef PLANISH_BATCH_NORM_H_
#define PLANISH_BATCH_NORM_H_

#include <cstdint>
#include <optional>

#include "planish/error.h"
#include "planish/norm.h"
#include "planish/parallel.h"
#include "planish/types.h"

// Batch normalisation (Ioffe & Szegedy 2015; Ba, Kiros & Hinton 2016, Eq. 2): every channel c of
// x [batch, channels, spatial] is normalised over the n = batch * spatial numbers that it has,
//   y = gain[c] * xhat + bias[c],   xhat = (x - mean[c]) * rstd[c],   rstd = 1 / sqrt(var + eps),
// with the mean and variance of these numbers in training, and with running estimates of them in
// evaluation. Element (b, c, s) lies at (b * channels + c) * spatial + s. Rows of features are
// spatial = 1.
namespace planish {

/// What BatchNormForward and BatchNormBackward take beside their arrays.
struct BatchNormOptions {
  double eps = 1e-5;  ///< added to the variance, inside the root; finite and >= 0
  /// Whether to divide by the root of the unbiased variance, sum((x - mean)^2) / (n - 1), rather
  /// than of the biased one, / n: what small batches (Ba et al. 6.6: 4 cases) ask for. Needs n
  /// >= 2.
  bool unbiased = false;
  /// The weight of this batch in the running estimates, in [0, 1]; without one it is
  /// 1 / (batches + 1), which makes them the averages over all batches (PyTorch's momentum=None).
  /// BatchNormBackward reads neither.
  std::optional<double> momentum = 0.1;
  int64_t batches = 0;       ///< batches that the running estimates have seen before this one, >= 0
  ParallelFor parallel_for;  ///< runs large calls on several threads; empty: the library's own
};

/// The arrays of BatchNormForward; types as in NormForwardArgs.
template <class T, class P = T>
struct BatchNormForwardArgs {
  int64_t batch = 0;              ///< samples, >= 0
  int64_t channels = 0;           ///< >= 0
  int64_t spatial = 1;            ///< numbers of a channel in a sample, >= 0
  const T* x = nullptr;           ///< [batch, channels, spatial] the input
  const P* gain = nullptr;        ///< [channels], or null for ones
  const P* bias = nullptr;        ///< [channels], or null for zeros
  T* y = nullptr;                 ///< [batch, channels, spatial] the output; may be x itself
  Compute<T>* mean = nullptr;     ///< [channels] the mean, rounded; null: not saved
  Compute<T>* mean_lo = nullptr;  ///< [channels] what `mean` cannot hold of it; null: not saved
  Compute<T>* rstd = nullptr;     ///< [channels] 1 / sqrt(var + eps); null: not saved
  Compute<T>* running_mean = nullptr;  ///< [channels] updated; null: none
  Compute<T>* running_var =
      nullptr;  ///< [channels] updated, with the unbiased variance; null: none
};

/// The arrays of BatchNormBackward. L is the loss, dy = dL/dy and so on.
template <class T, class P = T>
struct BatchNormBackwardArgs {
  int64_t batch = 0;                 ///< samples, >= 0
  int64_t channels = 0;              ///< >= 0
  int64_t spatial = 1;               ///< numbers of a channel in a sample, >= 0
  const T* dy = nullptr;             ///< [batch, channels, spatial] the gradient of the output
  const T* x = nullptr;              ///< [batch, channels, spatial] the input of the forward call
  const P* gain = nullptr;           ///< [channels], or null for ones, as in the forward call
  const Compute<T>* mean = nullptr;  ///< [channels] as saved by BatchNormForward
  const Compute<T>* mean_lo = nullptr;  ///< [channels] as saved by BatchNormForward
  const Compute<T>* rstd = nullptr;     ///< [channels] as saved by BatchNormForward
  T* dx = nullptr;     ///< [batch, channels, spatial] the gradient of x, or null; may be dy itself
  P* dgain = nullptr;  ///< [channels] the gradient of the gain, or null
  P* dbias = nullptr;  ///< [channels] the gradient of the bias, or null
};

/// The arrays of BatchNormEvaluate.
template <class T, class P = T>
struct BatchNormEvaluateArgs {
  int64_t batch = 0;                         ///< samples, >= 0
  int64_t channels = 0;                      ///< >= 0
  int64_t spatial = 1;                       ///< numbers of a channel in a sample, >= 0
  const T* x = nullptr;                      ///< [batch, channels, spatial] the input
  const P* gain = nullptr;                   ///< [channels], or null for ones
  const P* bias = nullptr;                   ///< [channels], or null for zeros
  const Compute<T>* running_mean = nullptr;  ///< [channels]
  const Compute<T>* running_var = nullptr;   ///< [channels]
  T* y = nullptr;  ///< [batch, channels, spatial] the output; may be x itself
};

/// The arrays of BatchNormEvaluateBackward.
template <class T, class P = T>
struct BatchNormEvaluateBackwardArgs {
  int64_t batch = 0;                         ///< samples, >= 0
  int64_t channels = 0;                      ///< >= 0
  int64_t spatial = 1;                       ///< numbers of a channel in a sample, >= 0
  const T* dy = nullptr;                     ///< [batch, channels, spatial] the output's gradient
  const T* x = nullptr;                      ///< [batch, channels, spatial]; dgain alone needs it
  const P* gain = nullptr;                   ///< [channels], or null for ones
  const Compute<T>* running_mean = nullptr;  ///< [channels]; dgain alone needs it
  const Compute<T>* running_var = nullptr;   ///< [channels]
  T* dx = nullptr;     ///< [batch, channels, spatial] the gradient of x, or null; may be dy itself
  P* dgain = nullptr;  ///< [channels] the gradient of the gain, or null
  P* dbias = nullptr;  ///< [channels] the gradient of the bias, or null
};

/// Normalises every channel of `args.x` by the moments of this batch, saves the moments that
/// BatchNormBackward needs, and brings the running estimates up to date where arrays are given:
///
///   running_mean = (1 - momentum) * running_mean + momentum * mean
///   running_var  = (1 - momentum) * running_var + momentum * sum((x - mean)^2) / (n - 1)
///
/// The running variance is the unbiased one whatever `options.unbiased` says, as in PyTorch.
///
/// A channel's result depends on no other channel's numbers, only, in its last bits, on the shape,
/// and is the same for any number of threads, to the bit. The moments are accurate for any mean. A
/// channel that holds NaN or an infinity gives NaN, in its running estimates too; a constant one
/// gives the bias, or NaN with eps = 0. With n = 1 every channel is constant; PyTorch refuses that,
/// here only what is unbiased needs n >= 2.
/// With n = 0 the moments are NaN, and the running estimates stay as they are.
///
/// Throws planish::Error when a size is negative or too large, eps, momentum or batches is out of
/// its range, n = 1 and `unbiased` or `running_var` is given, a needed array is null, an array is
/// not aligned to its type, or an output overlaps another array (y = x is allowed); std::bad_alloc
/// when sums find no memory: the outputs are then undefined.
template <class T, class P = T>
void BatchNormForward(const BatchNormForwardArgs<T, P>& args, const BatchNormOptions& options = {});

/// Takes `args.dy` back through BatchNormForward: writes the gradients `dx`, `dgain` and `dbias`
/// that are asked for. They replace what the arrays held. Sums run over a channel's n numbers, and
/// m is n, with `options.unbiased` n - 1; options otherwise serves its parallel_for.
///
///   dbias = sum(dy)
///   dgain = sum(dy * xhat)
///   dx    = gain * rstd * (dy - dbias / n - xhat * dgain / m)
///
/// The sums are taken in an order that the shape alone fixes: they are the same for any number of
/// threads, to the bit. Throws as BatchNormForward does.
template <class T, class P = T>
void BatchNormBackward(const BatchNormBackwardArgs<T, P>& args,
                       const BatchNormOptions& options = {});

/// y = gain * (x - running_mean) / sqrt(running_var + eps) + bias, of every channel. `options`
/// serves its eps and parallel_for. A negative running_var + eps gives NaN. Throws as
/// BatchNormForward does.
template <class T, class P = T>
void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>& args,
                       const BatchNormOptions& options = {});

/// Takes `args.dy` back through BatchNormEvaluate, whose estimates are constants:
///
///   dbias = sum(dy)
///   dgain = sum(dy * xhat)
///   dx    = gain * rstd * dy,   rstd = 1 / sqrt(running_var + eps)
///
/// Otherwise as BatchNormBackward.
template <class T, class P = T>
void BatchNormEvaluateBackward(const BatchNormEvaluateBackwardArgs<T, P>& args,
                               const BatchNormOptions& options = {});

#define PLANISH_EXTERN(T, P)                                                                 \
  extern template void BatchNormForward(const BatchNormForwardArgs<T, P>&,                   \
                                        const BatchNormOptions&);                            \
  extern template void BatchNormBackward(const BatchNormBackwardArgs<T, P>&,                 \
                                         const BatchNormOptions&);                           \
  extern template void BatchNormEvaluate(const BatchNormEvaluateArgs<T, P>&,                 \
                                         const BatchNormOptions&);                           \
  extern template void BatchNormEvaluateBackward(const BatchNormEvaluateBackwardArgs<T, P>&, \
                                                 const BatchNormOptions&);
PLANISH_NORM_TYPES(PLANISH_EXTERN)
#undef PLANISH_EXTERN

}  // namespace planish

#endif  // PLANISH_BATCH_NORM_H_
