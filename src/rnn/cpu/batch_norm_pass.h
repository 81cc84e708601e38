#ifndef PLANISH_SRC_RNN_CPU_BATCH_NORM_PASS_H_
#define PLANISH_SRC_RNN_CPU_BATCH_NORM_PASS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/base/loop.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/layer_call.h"
#include "src/rnn/cpu/order.h"
#include "src/rnn/cpu/padded_rows.h"
#include "src/rnn/cpu/slots.h"

namespace planish::internal {

/// A step of all sequences without its matrix product, for cells with norms over the batch. Threads
/// process ranges of units, because a norm needs all sequences.
template <class T>
class BatchNormPass {
 public:
  explicit BatchNormPass(const LayerCall<T>& layer) : layer_(layer), rows_(layer.rows()) {}

  /// Computes the norms, gates and states of a step. `row_of(b)` returns the CellRow of a sequence,
  /// and `active` is workspace [B].
  template <class F>
  void Forward(int64_t t, const Slots<T>& slots, T* c, int64_t* active, T* zx, T* zh,
               const F& row_of) const;

  /// Computes the gradients of a step. `row_of(b)` returns the CellRowBackward of a sequence, and
  /// `active` is workspace [B].
  template <class F>
  void Backward(int64_t t, const Slots<const T>& slots, T* dcell, int64_t* active, T* dzx, T* dzh,
                const F& row_of, const CellSums<T>& sums) const;

 private:
  /// A range of units with statistics over the batch. Everything in a step except its matrix
  /// products can be computed separately for each range.
  struct Part {
    int64_t first, last;
    CellCall<T> call;  ///< the settings for this range; columns are those of the whole layer
  };

  /// Calls f(part) for parts of the layer, on several threads.
  template <class F>
  void ForParts(int64_t rows, const F& f) const;

  BatchColumns<T> ActiveRows(int64_t t, int64_t* active) const;

  /// Normalizes `columns` columns of rows that are `stride` elements apart.
  void Normalize(BatchColumns<T> rows, int64_t stride, const T* z, int64_t columns, T* xhat,
                 T* rstd) const;
  /// Normalizes the sums z of one group of gates in place.
  void NormalizeSums(const BatchColumns<T>& rows, const Part& part, int g, T* z, T* rstd) const;
  /// Sets a column of padding to 0. Its variance is 0, so with eps = 0 it would be NaN.
  static void ClearColumn(const BatchColumns<T>& rows, int64_t stride, int64_t column, T* xhat,
                          T* rstd) {
    rstd[column] = 0;
    for (int64_t i = 0; i < rows.count; ++i) xhat[rows.rows[i] * stride + column] = 0;
  }

  const LayerCall<T>& layer_;
  const PaddedRows<T>& rows_;
};

template <class T>
template <class F>
void BatchNormPass<T>::Forward(int64_t t, const Slots<T>& slots, T* c, int64_t* active, T* zx,
                               T* zh, const F& row_of) const {
  const CellRecipe& recipe = layer_.recipe();
  const BatchColumns<T> rows = ActiveRows(t, active);
  ForParts(rows.count, [&](const Part& part) {
    for (int g = 0; g < layer_.order().groups; ++g) {
      NormalizeSums(rows, part, g, zx, slots.At(kRstdIh, t));
      if (recipe.sums == Sums::kSeparate) NormalizeSums(rows, part, g, zh, slots.At(kRstdHh, t));
    }
    const auto of_part = [&](int64_t i) {
      CellRow<T> row = row_of(rows.rows[i]);
      for (T** units : {&row.ah_n, &row.candidate, &row.before, &row.tanh_c, &row.h, &row.c}) {
        if (*units) *units += part.first;
      }
      if (row.xhat_c) row.xhat_c += part.first;
      return row;
    };
    for (int64_t i = 0; i < rows.count; ++i) {
      layer_.kernels().gates(part.call, of_part(i));
      if (part.last == layer_.padded()) rows_.ClearBeyondVectors(row_of(rows.rows[i]));
    }
    if (!recipe.is_lstm()) return;
    T* xhat = slots.At(kXhatC, t);
    Normalize(rows, layer_.padded(), c + part.first, part.last - part.first, xhat + part.first,
              slots.At(kNormC, t, part.first));
    for (int64_t unit = layer_.hidden(); unit < part.last; ++unit) {
      ClearColumn(rows, layer_.padded(), unit, xhat, slots.At(kNormC, t));
    }
    for (int64_t i = 0; i < rows.count; ++i) layer_.kernels().output(part.call, of_part(i));
  });
}

template <class T>
template <class F>
void BatchNormPass<T>::Backward(int64_t t, const Slots<const T>& slots, T* dcell, int64_t* active,
                                T* dzx, T* dzh, const F& row_of, const CellSums<T>& sums) const {
  const CellRecipe& recipe = layer_.recipe();
  const BatchColumns<T> rows = ActiveRows(t, active);
  if (rows.count == 0) return;
  ForParts(rows.count, [&](const Part& part) {
    CellSums<T> part_sums = sums;
    for (T** units : {&part_sums.bias_hn, &part_sums.gain_c, &part_sums.bias_c}) {
      if (*units) *units += part.first;
    }
    const auto of_part = [&](int64_t i) {
      CellRowBackward<T> row = row_of(rows.rows[i]);
      for (const T** units :
           {&row.candidate, &row.before, &row.tanh_c, &row.h_before, &row.h_after}) {
        if (*units) *units += part.first;
      }
      for (T** units : {&row.dh, &row.dc, &row.dcell, &row.workspace}) {
        if (*units) *units += part.first;
      }
      return row;
    };
    const auto normalize = [&](int64_t stride, int64_t first, int64_t columns, T* d, const T* xhat,
                               const T* rstd, const T* gain, T* dgain) {
      const BatchColumns<T> some{rows.rows, rows.count, stride, columns};
      layer_.kernels().batch_norm_backward(some, d + first, xhat + first, rstd + first,
                                           gain + first, dgain + first);
    };
    if (recipe.is_lstm()) {
      for (int64_t i = 0; i < rows.count; ++i) {
        layer_.kernels().output_backward(part.call, of_part(i), part_sums);
      }
      normalize(layer_.padded(), part.first, part.last - part.first, dcell, slots.At(kXhatC, t),
                slots.At(kNormC, t), layer_.cell().params.gain_c, sums.gain_c);
    }
    for (int64_t i = 0; i < rows.count; ++i) {
      layer_.kernels().gates_backward(part.call, of_part(i), part_sums);
    }
    for (int g = 0; g < layer_.order().groups; ++g) {
      const Order::Group& group = part.call.order.group[static_cast<size_t>(g)];
      const int64_t columns = (part.last - part.first) * group.gates;
      // The gradients of zx and zh are equal, except for a GRU's n.
      for (int64_t i = 0; recipe.is_lstm() && i < rows.count; ++i) {
        const int64_t at = rows.rows[i] * layer_.columns() + group.begin;
        std::copy_n(dzh + at, columns, dzx + at);
      }
      normalize(layer_.columns(), group.begin, columns, dzx, slots.At(kXhatIh, t),
                slots.At(kRstdIh, t), layer_.cell().params.gain_ih, sums.gain_ih);
      if (recipe.sums == Sums::kSeparate) {
        normalize(layer_.columns(), group.begin, columns, dzh, slots.At(kXhatHh, t),
                  slots.At(kRstdHh, t), layer_.cell().params.gain_hh, sums.gain_hh);
      }
    }
  });
}

template <class T>
template <class F>
void BatchNormPass<T>::ForParts(int64_t rows, const F& f) const {
  const CellRecipe& recipe = layer_.recipe();
  constexpr int64_t kLine = kUnitsOfLine<T>;
  const int64_t work = kLine * recipe.gates() * rows * (kRowElements + 2 * kColumnElements);
  RunParallel(layer_.parallel_for(), layer_.padded() / kLine, GrainFor(work),
              [&](int64_t begin, int64_t end) {
                Part part{begin * kLine, end * kLine, layer_.cell()};
                Order& order = part.call.order;
                order.hidden = std::min(layer_.hidden(), part.last) - part.first;
                for (int64_t g = 0; g < recipe.gates(); ++g) {
                  Order::Gate& gate = order.gate[static_cast<size_t>(g)];
                  gate.begin += part.first / order.lanes * gate.step;
                }
                for (int g = 0; g < order.groups; ++g) {
                  Order::Group& group = order.group[static_cast<size_t>(g)];
                  group.begin += part.first * group.gates;
                }
                CellParams<T>& params = part.call.params;
                for (const T** units : {&params.bias_hn, &params.gain_c, &params.bias_c}) {
                  if (*units) *units += part.first;
                }
                f(part);
              });
}

template <class T>
BatchColumns<T> BatchNormPass<T>::ActiveRows(int64_t t, int64_t* active) const {
  int64_t count = 0;
  layer_.ForActive(t, 0, layer_.batch(), [&](int64_t b) { active[count++] = b; });
  return {active, count, 0, 0};
}

template <class T>
void BatchNormPass<T>::Normalize(BatchColumns<T> rows, int64_t stride, const T* z, int64_t columns,
                                 T* xhat, T* rstd) const {
  if (rows.count == 0) {
    std::fill_n(rstd, columns, T{0});
    return;
  }
  rows.stride = stride;
  rows.columns = columns;
  layer_.kernels().batch_norm(rows, z, layer_.cell().eps, xhat, rstd);
}

template <class T>
void BatchNormPass<T>::NormalizeSums(const BatchColumns<T>& rows, const Part& part, int g, T* z,
                                     T* rstd) const {
  const Order::Group& group = part.call.order.group[static_cast<size_t>(g)];
  const int64_t columns = (part.last - part.first) * group.gates;
  Normalize(rows, layer_.columns(), z + group.begin, columns, z + group.begin, rstd + group.begin);
  if (part.last <= layer_.hidden()) return;
  for (int64_t column = group.begin; column < group.begin + columns; ++column) {
    if (layer_.packed().rows()[column] < 0) ClearColumn(rows, layer_.columns(), column, z, rstd);
  }
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_BATCH_NORM_PASS_H_
