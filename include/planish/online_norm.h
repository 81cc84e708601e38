#ifndef PLANISH_ONLINE_NORM_H_
#define PLANISH_ONLINE_NORM_H_

#include <cstdint>

#include "planish/error.h"
#include "planish/norm.h"
#include "planish/parallel.h"
#include "planish/types.h"
#include "planish/version.h"

// Online layer normalization: one mean and one deviation for a layer, updated from case to case.
// The rows of an array are cases in order: row t reads the state that row t - 1 wrote. See
// docs/math.md for the derivation and the source, and core.h for the contract on lifetime,
// alignment, aliasing, concurrency and exceptions. The state is an output.
//
// Example:
//   const std::vector<float> x = {1, 3, 2, 6};
//   std::vector<float> y(4);
//   planish::OnlineState state;
//   planish::OnlineNormForward<float>({.rows = 2, .cols = 2, .x = x.data(), .y = y.data()}, state,
//                                     {.alpha = 0.5});
//   for (const float value : y) std::printf("%.2f ", value);
//   std::printf("%.2f %.2f", state.mean, state.deviation);
//   // prints 0.00 1.33 -0.20 1.39 2.50 2.52
namespace planish {
inline namespace PLANISH_API {

/// State carried from case to case.
struct OnlineState {
  double mean = 0;       ///< mu
  double deviation = 1;  ///< sigma
};

/// How the weight alpha_t depends on the number t = 1, 2, ... of a case.
enum class AlphaRule : uint8_t {
  kConstant,  ///< alpha_t = alpha
  kInverse,   ///< alpha_t = 1 / t: mu_t is the average of the means of cases 1 to t
  kWarmup,    ///< alpha_t = max(alpha, 1 / t): first kInverse, then kConstant
};

/// Weights alpha_t of the cases of a layer. With kInverse and kWarmup the first case has weight 1,
/// so the initial state has no influence.
struct AlphaSchedule {
  AlphaRule rule = AlphaRule::kConstant;
  double alpha = 0.1;  ///< 0 <= alpha <= 1; kInverse ignores it
};

/// Writes the weights of the cases first, first + 1, ... to alphas [count], for
/// OnlineNormOptions::alphas. Throws ArgumentError if first < 1, count < 0, first + count exceeds
/// int64_t, schedule.rule is not an enumerator, schedule.alpha is not in [0, 1], or alphas is null
/// and count is not 0.
void FillAlphas(const AlphaSchedule& schedule, int64_t first, int64_t count, double* alphas);

/// Options of OnlineNormForward and OnlineNormBackward.
struct OnlineNormOptions {
  double alpha = 0.1;              ///< weight of a new case, 0 <= alpha <= 1
  const double* alphas = nullptr;  ///< [rows] one weight for each case, or null for alpha
  ParallelFor parallel_for;        ///< as in NormOptions
};

/// Arrays of OnlineNormForward; types as in NormForwardArgs.
template <class T, class P = T>
struct OnlineNormForwardArgs {
  int64_t rows = 0;                 ///< number of cases, >= 0
  int64_t cols = 0;                 ///< elements of a case, >= 2
  const T* x = nullptr;             ///< [rows, cols] cases, in order
  const P* gain = nullptr;          ///< [cols], or null for ones
  const P* bias = nullptr;          ///< [cols], or null for zeros
  T* y = nullptr;                   ///< [rows, cols] output; may be x itself
  Compute<T>* mean = nullptr;       ///< [rows] mu_t, rounded; null: not saved, as for the next four
  Compute<T>* mean_lo = nullptr;    ///< [rows] low-order part of the mean
  Compute<T>* rstd = nullptr;       ///< [rows] 1 / sigma_t
  Compute<T>* offset = nullptr;     ///< [rows] mean of the case minus mu_t
  Compute<T>* deviation = nullptr;  ///< [rows] s_t
};

/// Arrays of OnlineNormBackward. For a loss L, dy = dL/dy and so on.
template <class T, class P = T>
struct OnlineNormBackwardArgs {
  int64_t rows = 0;
  int64_t cols = 0;
  const T* dy = nullptr;             ///< [rows, cols] gradient of the output
  const T* x = nullptr;              ///< [rows, cols] input of OnlineNormForward
  const P* gain = nullptr;           ///< [cols], or null for ones, as in the forward call
  const Compute<T>* mean = nullptr;  ///< [rows] as saved by OnlineNormForward, like the next four
  const Compute<T>* mean_lo = nullptr;    ///< [rows]
  const Compute<T>* rstd = nullptr;       ///< [rows]
  const Compute<T>* offset = nullptr;     ///< [rows]
  const Compute<T>* deviation = nullptr;  ///< [rows]
  T* dx = nullptr;                        ///< [rows, cols] gradient of x, or null; may be dy itself
  P* dgain = nullptr;                     ///< [cols] gradient of the gain, or null
  P* dbias = nullptr;                     ///< [cols] gradient of the bias, or null
};

/// Normalizes cases in order and updates `state`:
///
///   mu_t    = alpha * mean(x) + (1 - alpha) * mu_(t-1)
///   s_t     = sqrt(sum((x - mu_t)^2) / (cols - 1))
///   sigma_t = alpha * s_t + (1 - alpha) * sigma_(t-1)
///   y       = gain * (x - mu_t) / sigma_t + bias
///
/// One call for many cases gives the same bits as one call for each. Results have the same bits for
/// any number of threads, and on every machine with the same SIMD target. There is no eps: sigma_t
/// = 0, possible only with alpha = 1 and a constant case, gives NaN. A NaN in a case makes all
/// later cases NaN.
///
/// Throws ArgumentError as NormForward does. Also if cols < 2, an alpha is not in [0, 1], the state
/// is not finite, or its deviation is negative. Throws std::bad_alloc if scratch memory cannot be
/// allocated.
template <class T, class P = T>
void OnlineNormForward(const OnlineNormForwardArgs<T, P>& args, OnlineState& state,
                       const OnlineNormOptions& options = {});

/// Computes the gradients of OnlineNormForward, with the same alpha. The state before a case is
/// treated as a constant. With z = (x - mu_t) / sigma_t and g = gain * dy:
///
///   dx    = (g - alpha * mean(g) - b * (z - alpha * mean(z)) * mean(g * z)) / sigma_t,
///           b = alpha * sigma_t * cols / ((cols - 1) * s_t), or 0 if s_t is 0
///   dgain = sum over rows of dy * z,   dbias = sum over rows of dy
///
/// Throws as NormBackward does, and as OnlineNormForward does for cols and alpha.
template <class T, class P = T>
void OnlineNormBackward(const OnlineNormBackwardArgs<T, P>& args,
                        const OnlineNormOptions& options = {});

}  // namespace PLANISH_API
}  // namespace planish

#endif  // PLANISH_ONLINE_NORM_H_
