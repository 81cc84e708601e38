#ifndef PLANISH_SRC_RNN_CPU_LAYER_H_
#define PLANISH_SRC_RNN_CPU_LAYER_H_

#include <cstdint>
#include <memory>

#include "planish/rnn.h"
#include "src/base/aligned.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu/packed.h"
#include "src/rnn/cpu/sums.h"

// The layers on the processor, for float and double. Arguments are those of planish/rnn.h, checked.
namespace planish::internal {

/// RnnSavedSize.
template <class T>
int64_t SavedSize(const CellRecipe& recipe, const RnnShape& shape, bool checkpoint);

/// What a call works in, kept from call to call.
template <class T>
struct RnnMemory {
  PackedLayer<T> packed;
  // Of both directions.
  Buffer<T> state, zx, step;
  Buffer<int64_t> active;
  // Of backward.
  Buffer<T> gradients, reset_sums, anew;
  ParamSums<T> sums;

  int64_t bytes() const;
};

/// That of the calling thread, for as long as one of these lives. What is then more than
/// kKeptBytes is freed.
template <class T>
class ThreadMemory {
 public:
  ThreadMemory();
  ~ThreadMemory();
  ThreadMemory(const ThreadMemory&) = delete;
  ThreadMemory& operator=(const ThreadMemory&) = delete;
  RnnMemory<T>& operator*() const { return *memory_; }

 private:
  std::unique_ptr<RnnMemory<T>> memory_;
};

/// `packed` may be that of `memory`.
template <class T>
void ForwardLayer(const PackedLayer<T>& packed, const RnnForwardArgs<T>& args,
                  const RnnOptions<T>& options, RnnMemory<T>& memory);

/// `packed`, as before, is packed for backward, and, with checkpoints, for forward. `shared`, where
/// it is not null, takes the gradients of the parameters in place of args.dparams.
template <class T>
void BackwardLayer(const PackedLayer<T>& packed, const RnnBackwardArgs<T>& args,
                   const RnnOptions<T>& options, ParamSums<T>* shared, RnnMemory<T>& memory);

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_LAYER_H_
