#ifndef PLANISH_SRC_RNN_CUDA_LAYER_H_
#define PLANISH_SRC_RNN_CUDA_LAYER_H_

#include <cstdint>

#include "planish/cuda_rnn.h"
#include "src/rnn/cell.h"

// Layers on a GPU, with checked arguments: their workspace, and the sequence of kernels and matrix
// products.
namespace planish::internal::cuda {

/// Returns the bytes of `saved`.
template <class T>
int64_t SavedBytes(const CellRecipe& recipe, const RnnShape& shape);

/// Returns whether the layer fits a persistent kernel on the current device.
template <class T>
bool FitsPersistent(const CellRecipe& recipe, const RnnShape& shape);

/// Return the workspace of a call in bytes.
template <class T>
int64_t WorkspaceBytesOf(const CellRecipe& recipe, const RnnForwardArgs<T>& args, bool persistent);
template <class T>
int64_t WorkspaceBytesOf(const CellRecipe& recipe, const RnnBackwardArgs<T>& args, bool persistent);

/// Enqueue a layer. Errors name `function`.
template <class T>
void ForwardLayer(const char* function, const CellRecipe& recipe, const RnnForwardArgs<T>& args,
                  const planish::cuda::RnnOptions<T>& options);
template <class T>
void BackwardLayer(const char* function, const CellRecipe& recipe, const RnnBackwardArgs<T>& args,
                   const planish::cuda::RnnOptions<T>& options);

}  // namespace planish::internal::cuda

#endif  // PLANISH_SRC_RNN_CUDA_LAYER_H_
