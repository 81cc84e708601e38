#ifndef PLANISH_SRC_RNN_CPU_PADDED_ROWS_H_
#define PLANISH_SRC_RNN_CPU_PADDED_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/order.h"

namespace planish::internal {

/// Padding of a layer's rows. Copies between the caller's rows [B, H] and the padded rows of
/// order.h, and sets the padding to zero.
template <class T>
class PaddedRows {
 public:
  PaddedRows(const Order& order, int64_t batch)
      : order_(order),
        batch_(batch),
        hidden_(order.hidden),
        padded_(order.padded),
        gates_(order.gates()) {}

  /// Copies the rows [B, H], or zeros, to the padded rows of `to`.
  void Pad(const T* from, T* to) const {
    for (int64_t b = 0; b < batch_; ++b) PadRow(from ? from + b * hidden_ : nullptr, to, b);
  }
  /// Copies one row [H], or zeros, to the padded row b.
  void PadRow(const T* from, T* to, int64_t b) const {
    T* row = to + b * padded_;
    if (from) std::copy_n(from, hidden_, row);
    std::fill(row + (from ? hidden_ : 0), row + padded_, T{0});
  }
  void Unpad(const T* from, T* to) const {
    for (int64_t b = 0; to && b < batch_; ++b) {
      std::copy_n(from + b * padded_, hidden_, to + b * hidden_);
    }
  }
  /// Sets the units after a row's last vector, which the kernels do not write, to zero, so that no
  /// uninitialized memory is saved.
  void ClearBeyondVectors(const CellRow<T>& row) const {
    const int64_t used = (hidden_ + order_.lanes - 1) / order_.lanes * order_.lanes;
    const int64_t unused = padded_ - used;
    if (unused == 0) return;
    for (T* units : {row.candidate, row.before, row.tanh_c}) {
      if (units) std::fill_n(units + used, unused, T{0});
    }
    for (T* columns : {row.xhat_ih, row.xhat_hh, row.gates}) {
      for (int g = 0; columns && g < order_.groups; ++g) {
        const Order::Group& group = order_.group[static_cast<size_t>(g)];
        std::fill_n(columns + group.begin + group.gates * used, group.gates * unused, T{0});
      }
    }
  }
  /// Sets the padding units in a row of sums to zero.
  void ClearPadding(T* row) const {
    for (int64_t unit = hidden_; unit < padded_; ++unit) {
      const int64_t vector = unit / order_.lanes, lane = unit % order_.lanes;
      for (int64_t g = 0; g < gates_; ++g) {
        const Order::Gate& gate = order_.gate[static_cast<size_t>(g)];
        row[gate.begin + vector * gate.step + lane] = 0;
      }
    }
  }

 private:
  const Order& order_;
  const int64_t batch_, hidden_, padded_, gates_;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_PADDED_ROWS_H_
