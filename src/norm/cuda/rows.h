#ifndef PLANISH_SRC_NORM_CUDA_ROWS_H_
#define PLANISH_SRC_NORM_CUDA_ROWS_H_

#include <cstdint>

#include "planish/types.h"
#include "src/norm/cuda/params.h"
#include "src/norm/cuda/rows_plan.h"

// Arguments and launch of the norms of rows on a GPU. All addresses are in device memory. The
// workspace has the size of the plan and is 16-byte aligned.
namespace planish::internal::cuda {

template <class T>
struct Forward {
  using C = Compute<T>;
  int64_t rows, cols;
  const T* x;
  int64_t x_stride;
  const T* residual;  // may be null
  int64_t residual_stride;
  T* sum;
  int64_t sum_stride;
  T* y;
  int64_t y_stride;
  Params gain, bias;
  C *mean, *mean_lo, *rstd;  // may be null
  double eps;
  C scale, slope;
  bool centre, adaptive, unbiased;
};

template <class T>
struct Backward {
  using C = Compute<T>;
  int64_t rows, cols;
  const T* dy;
  int64_t dy_stride;
  const T* x;  // null if not needed
  int64_t x_stride;
  Params gain;
  const C *mean, *mean_lo;  // null: 0
  const C* rstd;
  T* dx;  // may be null
  int64_t dx_stride;
  const T* dsum;  // may be null
  int64_t dsum_stride;
  void *dgain, *dbias;  // may be null
  bool gradients_are_float;
  double eps;
  C scale, slope;
  bool via_mean, via_scale, adaptive, unbiased;
};

/// Launches the kernels; errors name `function`.
template <class T>
void RunForward(const char* function, const Forward<T>& call, const RowsPlan& plan, void* stream,
                void* workspace);
template <class T>
void RunBackward(const char* function, const Backward<T>& call, const RowsPlan& plan, void* stream,
                 void* workspace);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_ROWS_H_
