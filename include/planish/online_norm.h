#ifndef PLANISH_ONLINE_NORM_H_
#define PLANISH_ONLINE_NORM_H_

#include <cstdint>

#include "planish/error.h"
#include "planish/norm.h"
#include "planish/parallel.h"
#include "planish/types.h"

// Online layer normalisation: one mean and one deviation for a layer, kept from case to case. Rows
// are cases in order: row t sees the state that row t - 1 left. docs/math.md has the derivation and
// the source.
namespace planish {

/// What is kept from case to case.
struct OnlineState {
  double mean = 0;       ///< mu
  double deviation = 1;  ///< sigma
};

/// What both directions take beside their arrays.
struct OnlineNormOptions {
  double alpha = 0.1;              ///< the weight of a new case, 0 <= alpha <= 1
  const double* alphas = nullptr;  ///< [rows] one for each case, in place of alpha; or null
  ParallelFor parallel_for;        ///< as in NormOptions
};

/// The arrays of OnlineNormForward, of types as in NormForwardArgs.
template <class T, class P = T>
struct OnlineNormForwardArgs {
  int64_t rows = 0;                 ///< number of cases, >= 0
  int64_t cols = 0;                 ///< numbers of a case, >= 2
  const T* x = nullptr;             ///< [rows, cols] the cases, in order
  const P* gain = nullptr;          ///< [cols], or null for ones
  const P* bias = nullptr;          ///< [cols], or null for zeros
  T* y = nullptr;                   ///< [rows, cols] the output; may be x itself
  Compute<T>* mean = nullptr;       ///< [rows] mu_t, rounded; null: not saved, as those that follow
  Compute<T>* mean_lo = nullptr;    ///< [rows] what `mean` cannot hold of it
  Compute<T>* rstd = nullptr;       ///< [rows] 1 / sigma_t
  Compute<T>* offset = nullptr;     ///< [rows] the case's own mean, less mu_t
  Compute<T>* deviation = nullptr;  ///< [rows] s_t
};

/// The arrays of OnlineNormBackward.
template <class T, class P = T>
struct OnlineNormBackwardArgs {
  int64_t rows = 0;
  int64_t cols = 0;
  const T* dy = nullptr;                  ///< [rows, cols] the gradient of the output
  const T* x = nullptr;                   ///< [rows, cols] the input of OnlineNormForward
  const P* gain = nullptr;                ///< [cols], or null for ones, as there
  const Compute<T>* mean = nullptr;       ///< [rows] as saved there, as those that follow
  const Compute<T>* mean_lo = nullptr;    ///< [rows]
  const Compute<T>* rstd = nullptr;       ///< [rows]
  const Compute<T>* offset = nullptr;     ///< [rows]
  const Compute<T>* deviation = nullptr;  ///< [rows]
  T* dx = nullptr;                        ///< [rows, cols] the gradient of x, or null; may be dy
  P* dgain = nullptr;                     ///< [cols] the gradient of the gain, or null
  P* dbias = nullptr;                     ///< [cols] the gradient of the bias, or null
};

/// Normalises cases in order, and leaves in `state` what the next case needs:
///
///   mu_t    = alpha * mean(x) + (1 - alpha) * mu_(t-1)
///   s_t     = sqrt(sum((x - mu_t)^2) / (cols - 1))
///   sigma_t = alpha * s_t + (1 - alpha) * sigma_(t-1)
///   y       = gain * (x - mu_t) / sigma_t + bias
///
/// One call for many cases and a call for each give the same bits, as does any number of threads.
/// There is no eps: sigma_t = 0, which takes alpha = 1 and a constant case, gives NaN. NaN in a
/// case is NaN in all that follow it.
///
/// Throws planish::Error as NormForward does, and when cols < 2, alpha is not between 0 and 1, or
/// the state is not finite or its deviation negative.
template <class T, class P = T>
void OnlineNormForward(const OnlineNormForwardArgs<T, P>& args, OnlineState& state,
                       const OnlineNormOptions& options = {});

/// Takes `args.dy` back through OnlineNormForward, with the same alpha. The state that a case found
/// is a constant. With z = (x - mu_t) / sigma_t and g = gain * dy:
///
///   dx    = (g - alpha * mean(g) - b * (z - alpha * mean(z)) * mean(g * z)) / sigma_t,
///           b = alpha * sigma_t * cols / ((cols - 1) * s_t), or 0 where s_t is 0
///   dgain = sum over rows of dy * z,   dbias = sum over rows of dy
///
/// Throws planish::Error as NormBackward does, and as OnlineNormForward for cols and alpha.
template <class T, class P = T>
void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>& args,
                        const OnlineNormOptions& options = {});

#define PLANISH_EXTERN(T, P)                                                               \
  extern template void OnlineNormForward(const OnlineNormForwardArgs<T, P>&, OnlineState&, \
                                         const OnlineNormOptions&);                        \
  extern template void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>&,             \
                                          const OnlineNormOptions&);
PLANISH_NORM_TYPES(PLANISH_EXTERN)
#undef PLANISH_EXTERN

}  // namespace planish

#endif  // PLANISH_ONLINE_NORM_H_
