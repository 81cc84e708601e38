#ifndef PLANISH_SRC_NORM_CUDA_POSITIONS_H_
#define PLANISH_SRC_NORM_CUDA_POSITIONS_H_

#include <cstdint>

#include "planish/types.h"
#include "src/norm/cuda/columns.h"
#include "src/norm/cuda/params.h"
#include "src/norm/cuda/positions_plan.h"

// Norms over the channels of [batch, channels, spatial] arrays on a GPU. All addresses are in
// device memory.
namespace planish::internal::cuda {

/// A norm's recipe and options, for the kernels.
template <class C>
struct PositionsRecipe {
  double eps;
  C scale, slope;
  bool centre, via_mean, via_scale, adaptive, unbiased;
};

template <class T>
struct PositionsForward {
  using C = Compute<T>;
  int64_t batch, channels, spatial;  // all > 0
  const T* x;
  T* y;
  Params gain, bias;
  C *mean, *mean_lo, *rstd;  // may be null
  PositionsRecipe<C> recipe;
};

/// Computes dx only; columns.h has the sums over positions.
template <class T>
struct PositionsBackward {
  using C = Compute<T>;
  int64_t batch, channels, spatial;  // all > 0
  const T* dy;
  const T* x;  // null if not needed
  T* dx;
  Params gain;
  SavedMoments<C> saved;
  PositionsRecipe<C> recipe;
};

/// Launch the kernels; errors name `function`.
template <class T>
void RunPositions(const char* function, const PositionsForward<T>& call, const PositionsPlan& plan,
                  void* stream);
template <class T>
void RunPositions(const char* function, const PositionsBackward<T>& call, const PositionsPlan& plan,
                  void* stream);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_NORM_CUDA_POSITIONS_H_
