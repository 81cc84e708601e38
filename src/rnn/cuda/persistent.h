#ifndef PLANISH_SRC_RNN_CUDA_PERSISTENT_H_
#define PLANISH_SRC_RNN_CUDA_PERSISTENT_H_

#include <cstdint>

#include "src/rnn/cuda/cells.h"
#include "src/rnn/cuda/plan.h"

// Arguments and launch of persistent kernels. Such a kernel computes all steps of a layer, and
// holds weight_hh in shared memory.
namespace planish::internal::cuda {

template <class T>
struct PersistentCall {
  PersistentPlan plan;
  bool reverse;
  const T* weight_hh;  ///< [G, H]
  const T *h0, *c0;    ///< [B, H], c0 of an sLSTM [B, 2H]; or null
  T* h;                ///< [2, B, plan.stride] workspace for the state
  double* sum_parts;   ///< [plan.sum_parts]
  double* cell_parts;  ///< [plan.cell_parts]
  T* y;                ///< [M, H]
  T *h_n, *c_n;        ///< as h0 and c0
};

/// After all steps, dh and dc are the gradients of the first state, including the part through the
/// matrix products.
template <class T>
struct PersistentBackwardCall : BackwardArrays<T> {
  PersistentBackwardPlan plan;
  bool reverse;
  const T* weight_hh;  ///< [G, H]
  double* sum_parts;   ///< [plan.sum_parts]
  double* cell_parts;  ///< [plan.cell_parts]
  T* partials;         ///< [plan.buffers, plan.partials]
};

/// Return the plans of the layer on the current device.
template <class T>
PersistentPlan PlanOnDevice(const CellRecipe& recipe, const RnnShape& shape);
template <class T>
PersistentBackwardPlan PlanBackwardOnDevice(const CellRecipe& recipe, const RnnShape& shape);

/// Launch the kernels. `layer` is as in RunForwardStep and RunBackwardStep. Errors name `function`.
template <class T>
void RunPersistent(const char* function, const CellLayer<T>& layer, const PersistentCall<T>& call,
                   void* stream);
template <class T>
void RunBackwardPersistent(const char* function, const CellLayer<T>& layer,
                           const PersistentBackwardCall<T>& call, void* stream);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_RNN_CUDA_PERSISTENT_H_
