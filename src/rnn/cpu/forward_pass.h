#ifndef PLANISH_SRC_RNN_CPU_FORWARD_PASS_H_
#define PLANISH_SRC_RNN_CPU_FORWARD_PASS_H_

#include <cstdint>

#include "src/rnn/cpu/batch_norm_pass.h"
#include "src/rnn/cpu/layer_call.h"
#include "src/rnn/cpu/padded_rows.h"
#include "src/rnn/cpu/slots.h"

namespace planish::internal {

/// The state of all sequences, and zx from the time `first` on.
template <class T>
struct ForwardState {
  T *h, *c, *zx;
  T* unprojected;  ///< [B, padded] h before the projection, or null
  int64_t first;
  int64_t* active;   ///< [B] only over the batch: indices of the active sequences
  bool own = false;  ///< zx has only the rows of the thread's sequences
};

/// The forward steps of a layer. Methods with [begin, end) process these sequences.
template <class T>
class ForwardPass {
 public:
  explicit ForwardPass(const LayerCall<T>& layer)
      : layer_(layer), rows_(layer.rows()), batch_norms_(layer) {}

  /// Returns whether each thread processes its sequences from x to y independently. Not with
  /// in_place(), where matrix products of few rows would write scattered parts.
  bool independent() const { return !layer_.splits_steps() && !layer_.in_place(); }

  /// Computes zx of the sequences [begin, end), with the rows of a step adjacent.
  void InputProduct(Times times, int64_t begin, int64_t end, T* zx) const;
  /// Computes zx of all sequences.
  void InputProduct(Times times, T* zx) const;

  /// Computes the steps of some times. y is null if they are recomputed.
  void Steps(Times times, int64_t begin, int64_t end, const ForwardState<T>& state,
             const Slots<T>& slots, T* y) const;

  /// Restores the state before a segment, to recompute it; `c` is the checkpoint.
  void Restore(Times times, const T* y, const T* c, const ForwardState<T>& state) const;

 private:
  void Step(int64_t t, int64_t begin, int64_t end, const ForwardState<T>& state,
            const Slots<T>& slots, T* y) const;

  const LayerCall<T>& layer_;
  const PaddedRows<T>& rows_;
  const BatchNormPass<T> batch_norms_;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_FORWARD_PASS_H_
