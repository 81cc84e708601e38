#ifndef PLANISH_SRC_NORM_CUDA_GATE_H_
#define PLANISH_SRC_NORM_CUDA_GATE_H_

#include <cstdint>

#include "src/norm/cuda/rows.h"

// Kernels before and after those of rows.h for gated norms, for norms that round before the product
// with the gain, and for quantized outputs. What passes between the kernels is in the workspace, in
// Compute<T>, [rows, cols] without gaps. Calls have one parameter set. Errors name `function`.
namespace planish::internal::cuda {

/// Computes v = x or x + residual, which it also writes to sum, times silu(z) with
/// gate_before_norm.
template <class T>
void RunGateInput(const char* function, const Forward<T>& call, Compute<T>* v, void* stream);

/// Computes y = v, times silu(z) with the gate after the norm. With `cast` first replaces v by
/// gain * Round(v) + bias. Writes it to y, if given, and to v if the
/// call quantizes.
template <class T>
void RunGateOutput(const char* function, const Forward<T>& call, Compute<T>* v, bool cast,
                   void* stream);

/// Quantizes the rows v.
template <class T>
void RunQuantize(const char* function, const Forward<T>& call, const Compute<T>* v, void* stream);

/// Computes x, the norm's input, and g, the gradient of its output. With the gate after the norm
/// also dgate.
template <class T>
void RunGateGradientInput(const char* function, const Backward<T>& call, Compute<T>* x,
                          Compute<T>* g, void* stream);

/// Computes dx from du, the gradient of the norm's input, and dsum. With the gate before the norm
/// also dgate.
template <class T>
void RunGateGradientOutput(const char* function, const Backward<T>& call, const Compute<T>* du,
                           void* stream);

/// Convert n parameters to Compute<T>, and back.
template <class T>
void RunWiden(const char* function, const T* from, int64_t n, Compute<T>* to, void* stream);
template <class T>
void RunRound(const char* function, const Compute<T>* from, int64_t n, T* to, void* stream);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_GATE_H_
