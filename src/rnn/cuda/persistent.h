#ifndef PLANISH_SRC_RNN_CUDA_PERSISTENT_H_
#define PLANISH_SRC_RNN_CUDA_PERSISTENT_H_

#include <cstdint>

#include "src/rnn/cuda/cells.h"
#include "src/rnn/cuda/plan.h"

// All steps of a layer by one kernel, whose blocks keep the weights of the state on the chip: what
// it takes forward and backward, and launching it.
namespace planish::internal::cuda {

template <class T>
struct PersistentCall {
  PersistentPlan plan;
  bool reverse;
  const T* weight_hh;  ///< [G, H]
  const T *h0, *c0;    ///< [B, H] or null
  T* h;                ///< [2, B, plan.stride] room for the state
  double* sum_parts;   ///< [plan.sum_parts]
  double* cell_parts;  ///< [plan.cell_parts]
  T* y;                ///< [M, H]
  T *h_n, *c_n;        ///< [B, H] or null
};

/// After all steps dh and dc are those of the states before them, with what came through the
/// products.
template <class T>
struct PersistentBackwardCall : BackwardArrays<T> {
  PersistentBackwardPlan plan;
  bool reverse;
  const T* weight_hh;  ///< [G, H]
  double* sum_parts;   ///< [plan.sum_parts]
  double* cell_parts;  ///< [plan.cell_parts]
  T* partials;         ///< [plan.buffers, plan.partials]
};

/// The plans of the layer on the current device.
template <class T>
PersistentPlan PlanOnDevice(const CellRecipe& recipe, const RnnShape& shape);
template <class T>
PersistentBackwardPlan PlanBackwardOnDevice(const CellRecipe& recipe, const RnnShape& shape);

/// `layer` is as for RunForwardStep and RunBackwardStep. `function` is named in errors.
template <class T>
void RunPersistent(const char* function, const CellLayer<T>& layer, const PersistentCall<T>& call,
                   void* stream);
template <class T>
void RunBackwardPersistent(const char* function, const CellLayer<T>& layer,
                           const PersistentBackwardCall<T>& call, void* stream);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_RNN_CUDA_PERSISTENT_H_
