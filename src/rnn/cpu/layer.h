#ifndef PLANISH_SRC_RNN_CPU_LAYER_H_
#define PLANISH_SRC_RNN_CPU_LAYER_H_

#include <cstdint>
#include <memory>

#include "planish/rnn.h"
#include "src/base/aligned.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu/packed.h"
#include "src/rnn/cpu/sums.h"

// Layers on the CPU, for float and double. Arguments are those of planish/rnn.h, already checked.
namespace planish::internal {

/// Returns RnnSavedSize.
template <class T>
int64_t SavedSize(const CellRecipe& recipe, const RnnShape& shape, bool checkpoint);

/// The workspace of a call, reused by later calls.
template <class T>
struct RnnMemory {
  PackedLayer<T> packed;
  // For both directions.
  Buffer<T> state, zx, step;
  Buffer<int64_t> active;
  // Only for backward.
  Buffer<T> gradients, reset_sums, anew;
  ParamSums<T> sums;

  int64_t bytes() const;
};

/// The calling thread's workspace during the object's lifetime. The destructor frees it if it is
/// larger than kKeptBytes.
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
