#include "src/rnn/cpu/backward_pass.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/base/loop.h"
#include "src/base/simd/gemm.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu/order.h"
#include "src/rnn/element_types.h"

namespace planish::internal {

template <class T>
void BackwardPass<T>::Steps(Times times, int64_t begin, int64_t end, const Slots<const T>& slots,
                            const StateGradients<T>& gradients, const GroupSums<T>& sums) const {
  for (int64_t i = 0; i < times.end - times.begin; ++i) {
    const int64_t t = layer_.in().reverse ? times.begin + i : times.end - 1 - i;
    Step(t, begin, end, slots, gradients, sums);
  }
}

template <class T>
void BackwardPass<T>::CopyWithoutPadding(Times times, T* copy) const {
  const int64_t batch = layer_.batch(), inputs = layer_.inputs();
  const T* x = layer_.in().x + times.begin * batch * inputs;
  for (int64_t t = times.begin; t < times.end; ++t) {
    for (int64_t b = 0; b < batch; ++b, x += inputs, copy += inputs) {
      if (layer_.Active(t, b)) {
        std::copy_n(x, inputs, copy);
      } else {
        std::fill_n(copy, inputs, T{0});
      }
    }
  }
}

template <class T>
const T* BackwardPass<T>::StateBefore(int64_t t, int64_t b) const {
  const RnnInputs<T>& in = layer_.in();
  if (layer_.Reset(t, b)) return in.h_reset;
  const int64_t length = in.lengths ? in.lengths[b] : layer_.time();
  const int64_t outputs = layer_.h_rows().width();
  if (t == (in.reverse ? length - 1 : 0)) return in.h0 ? in.h0 + b * outputs : nullptr;
  return args_.y + ((in.reverse ? t + 1 : t - 1) * layer_.batch() + b) * outputs;
}

template <class T>
void BackwardPass<T>::Step(int64_t t, int64_t begin, int64_t end, const Slots<const T>& slots,
                           const StateGradients<T>& to, const GroupSums<T>& sums) const {
  const CellRecipe& recipe = layer_.recipe();
  const PaddedStates<T>& h_rows = layer_.h_rows();
  const int64_t batch = layer_.batch(), padded = layer_.padded(), columns = layer_.columns();
  const int64_t outputs = h_rows.width(), padded_outputs = h_rows.padded();
  const bool projects = layer_.projects();
  T *dzx = to.dzx + (t - to.first) * layer_.sums(), *dzh = to.dzh + (t - to.first) * layer_.sums();
  T* h_before = to.h_before + (t - to.first) * h_rows.size();
  T* dprojected = projects ? to.dprojected + (t - to.first) * h_rows.size() : nullptr;
  T* unprojected = projects ? to.unprojected + (t - to.first) * layer_.states() : nullptr;
  const bool rnn = !recipe.is_lstm() && !recipe.is_gru();
  const auto prepare = [&](int64_t b) {
    if (!layer_.Active(t, b)) {
      h_rows.PadRow(nullptr, h_before, b);
      if (projects) {
        h_rows.PadRow(nullptr, dprojected, b);
        layer_.unit_rows().PadRow(nullptr, unprojected, b);
      }
      std::fill_n(dzx + b * columns, columns, T{0});
      std::fill_n(dzh + b * columns, columns, T{0});
      return;
    }
    h_rows.PadRow(StateBefore(t, b), h_before, b);
    const int64_t at = (t * batch + b) * outputs;
    if (rnn) h_rows.PadRow(args_.y + at, to.h_after, b);
    T* const dh = to.dh + b * padded_outputs;
    for (int64_t k = 0; args_.dy && k < outputs; ++k) dh[k] += args_.dy[at + k];
    if (projects) {
      h_rows.PadRow(dh, dprojected, b);
      Unproject(slots.At(kGates, t, b * columns), slots.At(kTanhC, t, b * padded),
                unprojected + b * padded);
    }
  };
  // The matrix product reads the padding, which the kernels need not write.
  const auto clear = [&](int64_t b) {
    rows_.ClearPadding(dzx + b * columns);
    rows_.ClearPadding(dzh + b * columns);
  };
  const int64_t rstds = recipe.over == Over::kRow ? recipe.norms() : 0;
  const int64_t coefficients_c = recipe.over == Over::kRow ? kCoefficients : 0;
  const auto row_of = [&](int64_t b) {
    const int64_t column = b * columns, unit = b * padded;
    return CellRowBackward<T>{.xhat_ih = slots.At(kXhatIh, t, column),
                              .xhat_hh = slots.At(kXhatHh, t, column),
                              .rstd_ih = slots.At(kRstdIh, t, b * rstds),
                              .rstd_hh = slots.At(kRstdHh, t, b * rstds),
                              .norm_c = slots.At(kNormC, t, b * coefficients_c),
                              .gates = slots.At(kGates, t, column),
                              .candidate = slots.At(kCandidate, t, unit),
                              .before = slots.At(kBefore, t, unit),
                              .tanh_c = slots.At(kTanhC, t, unit),
                              .h_before = h_before + unit,
                              .h_after = to.h_after + unit,
                              .dh = (projects ? to.dunprojected : to.dh) + unit,
                              .dc = to.dc + b * layer_.dc_rows().row(),
                              .dcell = to.dcell + unit,
                              .workspace = to.workspace + unit,
                              .dzx = dzx + column,
                              .dzh = dzh + column};
  };
  const auto split = [&](const auto& f) {
    if (!layer_.splits_steps()) return f(begin, end);
    layer_.SplitGroups(
        GrainFor(columns * kRowElements * batch / std::max<int64_t>(1, layer_.groups())), f);
  };
  if (projects) {
    split([&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) prepare(b);
    });
    layer_.ForRuns(t, begin, end, [&](int64_t first, int64_t last) {
      layer_.StepProduct({.rows = last - first,
                          .a = to.dh + first * padded_outputs,
                          .a_stride = padded_outputs,
                          .c = to.dunprojected + first * padded,
                          .c_stride = padded},
                         layer_.packed().hr_transposed());
    });
  }
  if (recipe.over == Over::kBatch) {
    for (int64_t b = begin; !projects && b < end; ++b) prepare(b);
    batch_norms_.Backward(t, slots, to.dcell, to.active, dzx, dzh, row_of, sums.cell[0]);
    layer_.ForActive(t, begin, end, clear);
  } else {
    const auto compute = [&](int64_t first, int64_t last) {
      for (int64_t b = first; !projects && b < last; ++b) prepare(b);
      layer_.ForActive(t, first, last, [&](int64_t b) {
        const CellRowBackward<T> row = row_of(b);
        if (b + 1 < last) PrefetchRow(row_of(b + 1));
        const CellSums<T>& group = sums.cell[static_cast<size_t>(layer_.GroupOf(b))];
        if (recipe.is_lstm()) layer_.kernels().output_backward(layer_.cell(), row, group);
        layer_.kernels().gates_backward(layer_.cell(), row, group);
        clear(b);
      });
    };
    split(compute);
  }
  layer_.ForRuns(t, begin, end, [&](int64_t first, int64_t last) {
    // The gradient of a GRU's state also bypasses the product.
    layer_.HiddenProductBackward(last - first, dzh + first * columns,
                                 to.dh + first * padded_outputs, recipe.is_gru());
  });
  layer_.ForActive(t, begin, end, [&](int64_t b) {
    if (!layer_.Reset(t, b)) return;
    const int64_t group = layer_.GroupOf(b);
    h_rows.Move(to.dh + b * padded_outputs, sums.h_reset + group * padded_outputs);
    if (recipe.is_lstm()) {
      const PaddedStates<T>& dc_rows = layer_.dc_rows();
      dc_rows.Move(to.dc + b * dc_rows.row(), sums.c_reset + group * dc_rows.row());
    }
  });
}

template <class T>
void BackwardPass<T>::PrefetchRow(const CellRowBackward<T>& row) const {
  const int64_t padded = layer_.padded(), columns = layer_.columns();
  for (const T* sums : {row.xhat_ih, row.xhat_hh, row.gates}) {
    for (int64_t j = 0; sums && j < columns; j += kUnitsOfLine<T>) __builtin_prefetch(sums + j);
  }
  for (const T* units : {row.candidate, row.before, row.tanh_c}) {
    for (int64_t j = 0; units && j < padded; j += kUnitsOfLine<T>) __builtin_prefetch(units + j);
  }
}

template <class T>
void BackwardPass<T>::Unproject(const T* gates, const T* tanh_c, T* unprojected) const {
  const Order& order = layer_.order();
  const T* o = gates + order.gate[3].begin;
  for (int64_t unit = 0; unit < order.padded; unit += order.lanes, o += order.gate[3].step) {
    for (int64_t i = 0; i < order.lanes; ++i) unprojected[unit + i] = o[i] * tanh_c[unit + i];
  }
  std::fill(unprojected + order.hidden, unprojected + order.padded, T{0});
}

#define PLANISH_INSTANTIATE(T) template class BackwardPass<T>;
PLANISH_RNN_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal
