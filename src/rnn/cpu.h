#ifndef PLANISH_SRC_RNN_CPU_H_
#define PLANISH_SRC_RNN_CPU_H_

#include <cstdint>

#include "planish/rnn.h"
#include "src/rnn/cell.h"

// The layers on the processor, for float and double. Arguments are those of planish/rnn.h, checked.
namespace planish::internal {

/// RnnSavedSize.
int64_t SavedSize(const CellRecipe& recipe, const RnnShape& shape, bool checkpoint);

template <class T>
void ForwardLayer(const CellRecipe& recipe, const RnnForwardArgs<T>& args,
                  const RnnOptions<T>& options);

template <class T>
void BackwardLayer(const CellRecipe& recipe, const RnnBackwardArgs<T>& args,
                   const RnnOptions<T>& options);

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_H_
