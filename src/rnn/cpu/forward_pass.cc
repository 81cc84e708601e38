#include "src/rnn/cpu/forward_pass.h"

#include <algorithm>
#include <cstdint>

#include "planish/rnn.h"
#include "src/base/loop.h"
#include "src/base/simd/gemm.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/order.h"
#include "src/rnn/element_types.h"

namespace planish::internal {

template <class T>
void ForwardPass<T>::InputProduct(Times times, int64_t begin, int64_t end, T* zx) const {
  const int64_t batch = layer_.batch(), inputs = layer_.inputs();
  Multiply<T>({.rows = (times.end - times.begin) * (end - begin),
               .a = layer_.in().x + (times.begin * batch + begin) * inputs,
               .a_stride = inputs,
               .a_block = end - begin,
               .a_block_stride = batch * inputs,
               .c = zx,
               .c_stride = layer_.columns()},
              layer_.packed().ih(), 0, layer_.packed().ih().panels());
}

template <class T>
void ForwardPass<T>::InputProduct(Times times, T* zx) const {
  const int64_t batch = layer_.batch(), inputs = layer_.inputs();
  MultiplyAll<T>({.rows = (times.end - times.begin) * batch,
                  .a = layer_.in().x + times.begin * batch * inputs,
                  .a_stride = inputs,
                  .c = zx,
                  .c_stride = layer_.columns()},
                 layer_.packed().ih(), layer_.parallel_for());
}

template <class T>
void ForwardPass<T>::Steps(Times times, int64_t begin, int64_t end, const ForwardState<T>& state,
                           const Slots<T>& slots, T* y) const {
  for (int64_t i = 0; i < times.end - times.begin; ++i) {
    const int64_t t = layer_.in().reverse ? times.end - 1 - i : times.begin + i;
    Step(t, begin, end, state, slots, y);
  }
  if (!layer_.splits_steps()) layer_.FinishStores();
}

template <class T>
void ForwardPass<T>::Restore(Times times, const T* y, const T* c,
                             const ForwardState<T>& state) const {
  const RnnInputs<T>& in = layer_.in();
  const int64_t batch = layer_.batch();
  const int64_t t = in.reverse ? times.end - 1 : times.begin;
  const bool first = in.reverse ? times.end == layer_.time() : times.begin == 0;
  layer_.h_rows().Pad(in.h0, state.h);
  for (int64_t b = 0; !first && b < batch; ++b) {
    const int64_t before = in.reverse ? t + 1 : t - 1;
    if (layer_.Active(before, b)) {
      layer_.h_rows().PadRow(y + (before * batch + b) * layer_.h_rows().width(), state.h, b);
    }
  }
  if (layer_.recipe().is_lstm()) std::copy_n(c, layer_.c_rows().size(), state.c);
}

template <class T>
void ForwardPass<T>::Step(int64_t t, int64_t begin, int64_t end, const ForwardState<T>& state,
                          const Slots<T>& slots, T* y) const {
  const CellRecipe& recipe = layer_.recipe();
  const PaddedStates<T>& h_rows = layer_.h_rows();
  const int64_t batch = layer_.batch(), padded = layer_.padded(), columns = layer_.columns();
  const int64_t outputs = h_rows.width(), padded_outputs = h_rows.padded();
  layer_.ForActive(t, begin, end, [&](int64_t b) {
    if (!layer_.Reset(t, b)) return;
    h_rows.PadRow(layer_.in().h_reset, state.h, b);
    if (recipe.is_lstm()) layer_.c_rows().PadRow(layer_.in().c_reset, state.c, b);
  });
  T* zx = state.own ? state.zx + ((t - state.first) * (end - begin) - begin) * columns
                    : state.zx + (t - state.first) * layer_.sums();
  // The product accumulates into zx if only zx + zh is used.
  const bool added = recipe.uses_only_sum();
  const bool separate = recipe.sums == Sums::kSeparate;
  T* zh = added ? zx : slots.At(separate && layer_.in_place() ? kXhatHh : kZh, t);
  layer_.ForRuns(t, begin, end, [&](int64_t first, int64_t last) {
    layer_.HiddenProduct(last - first, state.h + first * padded_outputs, zh + first * columns,
                         added);
  });
  const int64_t rstds = recipe.over == Over::kRow ? recipe.norms() : 0;
  const int64_t coefficients_c = recipe.over == Over::kRow ? kCoefficients : 0;
  const auto row_of = [&](int64_t b) {
    const int64_t column = b * columns, unit = b * padded;
    return CellRow<T>{.zx = zx + column,
                      .zh = zh ? zh + column : nullptr,
                      .a = layer_.in_place() ? slots.At(kScaled, t, column) : zx + column,
                      .ah_n = !recipe.splits_n()  ? nullptr
                              : layer_.in_place() ? slots.At(kScaledN, t, unit)
                                                  : zh + column + layer_.order().gate[2].begin,
                      .norm_c = slots.At(kNormC, t, b * coefficients_c),
                      .xhat_c = slots.At(kXhatC, t, unit),
                      .h = (layer_.projects() ? state.unprojected : state.h) + unit,
                      .c = state.c + b * layer_.c_rows().row(),
                      .xhat_ih = slots.At(kXhatIh, t, column),
                      .xhat_hh = slots.At(kXhatHh, t, column),
                      .rstd_ih = slots.At(kRstdIh, t, b * rstds),
                      .rstd_hh = slots.At(kRstdHh, t, b * rstds),
                      .gates = slots.At(kGates, t, column),
                      .candidate = slots.At(kCandidate, t, unit),
                      .before = slots.At(kBefore, t, unit),
                      .tanh_c = slots.At(kTanhC, t, unit)};
  };
  const auto clear = [&](int64_t b) {
    if (!layer_.Active(t, b)) return slots.ClearRow(t, b, batch, recipe.over);
    // An infinite input times a padding weight of 0 would be NaN.
    rows_.ClearPadding(zx + b * columns);
    if (zh) rows_.ClearPadding(zh + b * columns);
  };
  const auto write = [&](int64_t b) {
    if (!y) return;
    T* out = y + (t * batch + b) * outputs;
    if (layer_.Active(t, b)) {
      std::copy_n(state.h + b * padded_outputs, outputs, out);
    } else {
      std::fill_n(out, outputs, T{0});
    }
  };
  // Projects h and writes y. Without a projection, `compute` writes y while h is in a cache.
  const auto project = [&] {
    layer_.ForRuns(t, begin, end, [&](int64_t first, int64_t last) {
      layer_.StepProduct({.rows = last - first,
                          .a = state.unprojected + first * padded,
                          .a_stride = padded,
                          .c = state.h + first * padded_outputs,
                          .c_stride = padded_outputs},
                         layer_.packed().hr());
    });
    for (int64_t b = begin; b < end; ++b) write(b);
  };
  if (recipe.over == Over::kBatch) {
    for (int64_t b = begin; b < end; ++b) clear(b);
    batch_norms_.Forward(t, slots, state.c, state.active, zx, zh, row_of);
    if (layer_.projects()) return project();
    for (int64_t b = begin; b < end; ++b) write(b);
    return;
  }
  const auto compute = [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      clear(b);
      if (layer_.Active(t, b)) {
        const CellRow<T> row = row_of(b);
        layer_.kernels().gates(layer_.cell(), row);
        rows_.ClearBeyondVectors(row);
        if (recipe.is_lstm()) layer_.kernels().output(layer_.cell(), row);
      }
      if (!layer_.projects()) write(b);
    }
  };
  if (layer_.splits_steps()) {
    layer_.SplitSequences(GrainFor(columns * kRowElements), [&](int64_t first, int64_t last) {
      compute(first, last);
      layer_.FinishStores();
    });
  } else {
    compute(begin, end);
  }
  if (layer_.projects()) project();
}

#define PLANISH_INSTANTIATE(T) template class ForwardPass<T>;
PLANISH_RNN_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal
