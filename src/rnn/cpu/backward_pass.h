#ifndef PLANISH_SRC_RNN_CPU_BACKWARD_PASS_H_
#define PLANISH_SRC_RNN_CPU_BACKWARD_PASS_H_

#include <cstdint>
#include <vector>

#include "planish/rnn.h"
#include "src/rnn/cpu/batch_norm_pass.h"
#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/layer_call.h"
#include "src/rnn/cpu/padded_rows.h"
#include "src/rnn/cpu/slots.h"

namespace planish::internal {

/// Gradients of the state of all sequences. Also the gradients of zx and zh, and the state before
/// each step, for a segment from the time `first` on. With a projection, also h before it and the
/// gradients after it.
template <class T>
struct StateGradients {
  T *dh, *dc, *dcell, *workspace, *h_after;
  T* dunprojected;  ///< [B, padded] the gradient of h before the projection, or null
  T *dzx, *dzh, *h_before, *dprojected, *unprojected;
  int64_t first;
  int64_t* active;
};

/// Gradient sums of each group of sequences: of the parameters, and of the states after resets, in
/// padded rows.
template <class T>
struct GroupSums {
  const std::vector<CellSums<T>>& cell;
  T *h_reset, *c_reset;
};

/// The backward steps of a layer. Methods with [begin, end) process these sequences.
template <class T>
class BackwardPass {
 public:
  BackwardPass(const LayerCall<T>& layer, const RnnBackwardArgs<T>& args)
      : layer_(layer), rows_(layer.rows()), args_(args), batch_norms_(layer) {}

  /// Computes the steps `times` from the values that forward wrote to `slots`.
  void Steps(Times times, int64_t begin, int64_t end, const Slots<const T>& slots,
             const StateGradients<T>& gradients, const GroupSums<T>& sums) const;

  /// Copies x of a segment, with zeros past the length of a sequence. There x can be NaN, and NaN
  /// times a gradient of 0 would be NaN.
  void CopyWithoutPadding(Times times, T* copy) const;

 private:
  void Step(int64_t t, int64_t begin, int64_t end, const Slots<const T>& slots,
            const StateGradients<T>& to, const GroupSums<T>& sums) const;

  /// Returns the state before a step, or null for zeros.
  const T* StateBefore(int64_t t, int64_t b) const;

  /// Prefetches the saved values of a row during the work on another row. They are no longer in the
  /// caches.
  void PrefetchRow(const CellRowBackward<T>& row) const;

  /// Writes h before the projection, recomputed from the saved gates and tanh of c.
  void Unproject(const T* gates, const T* tanh_c, T* unprojected) const;

  const LayerCall<T>& layer_;
  const PaddedRows<T>& rows_;
  const RnnBackwardArgs<T>& args_;
  const BatchNormPass<T> batch_norms_;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_BACKWARD_PASS_H_
