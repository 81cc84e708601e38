#ifndef PLANISH_SRC_RNN_CPU_H_
#define PLANISH_SRC_RNN_CPU_H_

#include <cstdint>

#include "planish/rnn.h"
#include "src/base/aligned.h"
#include "src/rnn/cell.h"
#include "src/rnn/packed.h"

// The layers on the processor, for float and double. Arguments are those of planish/rnn.h, checked.
namespace planish::internal {

/// RnnSavedSize.
template <class T>
int64_t SavedSize(const CellRecipe& recipe, const RnnShape& shape, bool checkpoint);

/// Memory that grows and is kept from call to call.
template <class T>
class Buffer {
 public:
  /// At least n numbers, whose values are whatever they were.
  T* Get(int64_t n) {
    if (n > capacity_) {
      capacity_ = 0;
      data_ = MakeAligned<T>(n);
      capacity_ = n;
    }
    return data_.get();
  }

 private:
  AlignedArray<T> data_;
  int64_t capacity_ = 0;
};

/// What ForwardLayer works in.
template <class T>
struct ForwardMemory {
  Buffer<T> state, sums, step;
  Buffer<int64_t> active;
};

template <class T>
void ForwardLayer(const PackedLayer<T>& packed, const RnnForwardArgs<T>& args,
                  const RnnOptions<T>& options, ForwardMemory<T>& memory);

template <class T>
void BackwardLayer(Cell cell, const RnnBackwardArgs<T>& args, const RnnOptions<T>& options);

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_H_
