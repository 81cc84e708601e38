#ifndef PLANISH_SRC_NORM_ROWS_GATE_H_
#define PLANISH_SRC_NORM_ROWS_GATE_H_

#include <cstdint>

#include "planish/types.h"

// Kernels around a norm of rows in Compute<T>: conversions, the gate s = silu(z), and the product
// with the gain after rounding. Each processes n elements of one row, or of contiguous rows. An
// output must not overlap an input. All for T float, double, bfloat16 and float16, with the SIMD
// target in use.
namespace planish::internal {

/// Computes u = x * s, or u = x if `gate` is null.
template <class T>
void GateInput(const T* x, const T* gate, int64_t n, Compute<T>* u);

/// Arrays of GateOutput. Without a gain, `bias` is not read.
template <class T>
struct GateOutputArgs {
  const Compute<T>* v;
  const Compute<T>* gain;  ///< or null
  const Compute<T>* bias;
  const T* gate;     ///< or null
  T* y;              ///< or null
  Compute<T>* wide;  ///< y before it is rounded to T; null unless y is
  bool use_nt_stores;
};

/// Computes y = v * s; without a gate y = v. With a gain first replaces v by gain * Round(v) +
/// bias, rounded again if a gate follows. Round is rounding to T.
template <class T>
void GateOutput(const GateOutputArgs<T>& args, int64_t n);

/// Arrays of GateGradient for the gate after the norm. The norm's output is recomputed from its
/// statistics.
template <class T>
struct GateAfterArgs {
  const T *dy, *x, *gate;
  const Compute<T>*gain, *bias;
  Compute<T> mean, mean_lo, rstd;
  Compute<T>* dnorm;  ///< gradient of the norm's output
  Compute<T>* wide;   ///< x, converted; or null
  T* dgate;           ///< or null
};

/// Computes dnorm = dy * s and dgate = dy * (gain * xhat + bias) * s'.
template <class T>
void GateAfterGradient(const GateAfterArgs<T>& args, int64_t n);

/// Arrays of GateBeforeGradient.
template <class T>
struct GateBeforeArgs {
  const Compute<T>* du;
  const T *x, *gate;
  T *dx, *dgate;  ///< each can be null
  bool use_nt_stores;
};

/// Computes dx = du * s and dgate = du * x * s'.
template <class T>
void GateBeforeGradient(const GateBeforeArgs<T>& args, int64_t n);

}  // namespace planish::internal

#endif  // PLANISH_SRC_NORM_ROWS_GATE_H_
