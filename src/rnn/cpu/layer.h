#ifndef PLANISH_SRC_RNN_CPU_LAYER_H_
#define PLANISH_SRC_RNN_CPU_LAYER_H_

#include <cstdint>

#include "planish/rnn.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu/packed.h"
#include "src/rnn/cpu/sums.h"
#include "src/rnn/cpu/workspace.h"

// Layers on the CPU, for float and double. Arguments are those of planish/rnn.h, already checked.
namespace planish::internal {

/// Returns RnnSavedSize.
template <class T>
int64_t SavedSize(const CellRecipe& recipe, const RnnShape& shape, bool checkpoint);

/// Computes RnnForward. `packed` may be memory.packed.
template <class T>
void ForwardLayer(const PackedLayer<T>& packed, const RnnForwardArgs<T>& args,
                  const RnnOptions<T>& options, RnnMemory<T>& memory);

/// Computes RnnBackward. `packed` must be packed for backward, and with checkpoints also for
/// forward. `shared`, unless null, receives the parameters' gradients instead of args.dparams.
template <class T>
void BackwardLayer(const PackedLayer<T>& packed, const RnnBackwardArgs<T>& args,
                   const RnnOptions<T>& options, ParamSums<T>* shared, RnnMemory<T>& memory);

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_LAYER_H_
