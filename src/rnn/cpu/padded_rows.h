#ifndef PLANISH_SRC_RNN_CPU_PADDED_ROWS_H_
#define PLANISH_SRC_RNN_CPU_PADDED_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/order.h"

namespace planish::internal {

/// Copies between the caller's states [B, width] and padded rows, whose padding is zero.
template <class T>
class PaddedStates {
 public:
  PaddedStates(int64_t width, int64_t batch)
      : batch_(batch), width_(width), padded_(PaddedUnits<T>(width)) {}

  int64_t width() const { return width_; }
  int64_t padded() const { return padded_; }
  /// Returns the elements of all padded rows.
  int64_t size() const { return batch_ * padded_; }

  /// Copies the rows [B, width], or zeros, to the padded rows of `to`.
  void Pad(const T* from, T* to) const {
    for (int64_t b = 0; b < batch_; ++b) PadRow(from ? from + b * width_ : nullptr, to, b);
  }
  /// Copies one row [width], or zeros, to the padded row b.
  void PadRow(const T* from, T* to, int64_t b) const {
    T* row = to + b * padded_;
    if (from) std::copy_n(from, width_, row);
    std::fill(row + (from ? width_ : 0), row + padded_, T{0});
  }
  void Unpad(const T* from, T* to) const {
    for (int64_t b = 0; to && b < batch_; ++b) {
      std::copy_n(from + b * padded_, width_, to + b * width_);
    }
  }

 private:
  const int64_t batch_, width_, padded_;
};

/// Clears the padding of a step's rows in order.h.
template <class T>
class PaddedRows {
 public:
  explicit PaddedRows(const Order& order)
      : order_(order), hidden_(order.hidden), padded_(order.padded), gates_(order.gates()) {}

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
  const int64_t hidden_, padded_, gates_;
};

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_PADDED_ROWS_H_
