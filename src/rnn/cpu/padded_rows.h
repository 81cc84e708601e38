#ifndef PLANISH_SRC_RNN_CPU_PADDED_ROWS_H_
#define PLANISH_SRC_RNN_CPU_PADDED_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/order.h"

namespace planish::internal {

/// Copies between the caller's states [B, parts, width] and padded rows, whose padding is zero.
/// Absent states are zeros, or in a second part `absent`.
template <class T>
class PaddedStates {
 public:
  PaddedStates(int64_t width, int64_t batch, int64_t parts = 1, T absent = 0)
      : batch_(batch),
        parts_(parts),
        width_(width),
        padded_(PaddedUnits<T>(width)),
        absent_(absent) {}

  /// Returns the elements of a part without and with padding, and of a padded row.
  int64_t width() const { return width_; }
  int64_t padded() const { return padded_; }
  int64_t row() const { return parts_ * padded_; }
  /// Returns the elements of all padded rows.
  int64_t size() const { return batch_ * row(); }

  /// Copies the rows [B, width], or zeros, to the padded rows of `to`.
  void Pad(const T* from, T* to) const {
    for (int64_t b = 0; b < batch_; ++b) PadRow(from ? from + b * parts_ * width_ : nullptr, to, b);
  }
  /// Copies one row [width], or zeros, to the padded row b.
  void PadRow(const T* from, T* to, int64_t b) const {
    for (int64_t part = 0; part < parts_; ++part) {
      T* const begin = to + b * row() + part * padded_;
      if (from) {
        std::copy_n(from + part * width_, width_, begin);
      } else {
        std::fill_n(begin, width_, part == 0 ? T{0} : absent_);
      }
      std::fill(begin + width_, begin + padded_, T{0});
    }
  }
  void Unpad(const T* from, T* to) const {
    for (int64_t b = 0; to && b < batch_; ++b) {
      UnpadRow(from + b * row(), to + b * parts_ * width_);
    }
  }

  /// Copies one padded row.
  void UnpadRow(const T* from, T* to) const {
    for (int64_t part = 0; part < parts_; ++part) {
      std::copy_n(from + part * padded_, width_, to + part * width_);
    }
  }
  /// Adds a padded row to another, and sets it to zero.
  void Move(T* row, T* to) const {
    for (int64_t k = 0; k < this->row(); ++k) to[k] += row[k];
    std::fill_n(row, this->row(), T{0});
  }

 private:
  const int64_t batch_, parts_, width_, padded_;
  const T absent_;
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
