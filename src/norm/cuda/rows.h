#ifndef PLANISH_SRC_NORM_CUDA_ROWS_H_
#define PLANISH_SRC_NORM_CUDA_ROWS_H_

#include <cstdint>

#include "planish/norm.h"
#include "src/norm/cuda/call.h"
#include "src/norm/cuda/rows_plan.h"

// Arguments and launch of the norms of rows on a GPU. All addresses are in device memory. The
// workspace has the size of the plan and is 16-byte aligned.
namespace planish::internal::cuda {

/// A call of NormForward, with all strides set.
template <class T>
struct Forward : UntypedParams<NormForwardArgs, T>, KernelSettings<Compute<T>> {};

/// A call of NormBackward, with all strides set. x, mean and mean_lo are null if they are not read.
template <class T>
struct Backward : UntypedParams<NormBackwardArgs, T>, KernelSettings<Compute<T>> {};

/// Launches the kernels; errors name `function`.
template <class T>
void RunForward(const char* function, const Forward<T>& call, const RowsPlan& plan, void* stream,
                void* workspace);
template <class T>
void RunBackward(const char* function, const Backward<T>& call, const RowsPlan& plan, void* stream,
                 void* workspace);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_ROWS_H_
