#ifndef PLANISH_SRC_RNN_CUDA_LAYER_H_
#define PLANISH_SRC_RNN_CUDA_LAYER_H_

#include <cstdint>

#include "planish/cuda_rnn.h"
#include "src/rnn/cell.h"

// Whole layers on a GPU, of checked arguments: the memory that they work in, and the order of their
// kernels and products.
namespace planish::internal::cuda {

/// What is saved, in bytes.
template <class T>
int64_t SavedBytes(const CellRecipe& recipe, const RnnShape& shape);

/// Whether the current device keeps the layer's weights on its chip.
template <class T>
bool FitsPersistent(const CellRecipe& recipe, const RnnShape& shape);

template <class T>
int64_t ForwardRoomBytes(const CellRecipe& recipe, const RnnShape& shape, bool saved,
                         bool persistent);
template <class T>
int64_t BackwardRoomBytes(const CellRecipe& recipe, const RnnShape& shape, bool lengths,
                          bool persistent);

/// `function` is named in errors.
template <class T>
void ForwardLayer(const char* function, const CellRecipe& recipe, const RnnForwardArgs<T>& args,
                  const planish::cuda::RnnOptions<T>& options);
template <class T>
void BackwardLayer(const char* function, const CellRecipe& recipe, const RnnBackwardArgs<T>& args,
                   const planish::cuda::RnnOptions<T>& options);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_RNN_CUDA_LAYER_H_
