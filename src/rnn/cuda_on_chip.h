#ifndef PLANISH_SRC_RNN_CUDA_ON_CHIP_H_
#define PLANISH_SRC_RNN_CUDA_ON_CHIP_H_

#include <cstdint>

#include "src/rnn/cuda_cells.h"
#include "src/rnn/cuda_plan.h"

// All steps of a layer forward by one kernel, whose blocks keep the weights of the state on the
// chip: what it takes, and launching it.
namespace planish::internal::cuda {

template <class T>
struct OnChipCall {
  OnChipPlan plan;
  bool reverse;
  const T* weight_hh;  ///< [G, H]
  const T *h0, *c0;    ///< [B, H] or null
  T* h;                ///< [2, B, plan.stride] room for the state
  double* sum_parts;   ///< [plan.sum_parts]
  double* cell_parts;  ///< [plan.cell_parts]
  T* y;                ///< [M, H]
  T *h_n, *c_n;        ///< [B, H] or null
};

/// The plan of the layer on the current device.
template <class T>
OnChipPlan PlanOnDevice(const CellRecipe& recipe, const RnnShape& shape);

/// `layer` is as for RunForwardStep. `function` is named in errors.
template <class T>
void RunOnChip(const char* function, const CellLayer<T>& layer, const OnChipCall<T>& call,
               void* stream);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_RNN_CUDA_ON_CHIP_H_
