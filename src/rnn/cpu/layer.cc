#include "src/rnn/cpu/layer.h"

#include <algorithm>
#include <cstdint>

#include "src/base/aligned.h"
#include "src/base/simd/gemm.h"
#include "src/base/tuning.h"
#include "src/rnn/cpu/backward_pass.h"
#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/forward_pass.h"
#include "src/rnn/cpu/layer_call.h"
#include "src/rnn/cpu/order.h"
#include "src/rnn/cpu/slots.h"
#include "src/rnn/element_types.h"

namespace planish::internal {
namespace {

/// Returns the mode in which a layer saves `elements` elements for backward.
template <class T>
Keep KeepAt(const CellRecipe& recipe, const T* saved, int64_t elements) {
  // Non-temporal stores need aligned vectors. Norms over the batch read what they saved.
  const bool aligned = reinterpret_cast<uintptr_t>(saved) % kAlignment == 0;
  const bool use_nt_stores =
      aligned && recipe.over == Over::kRow &&
      elements * static_cast<int64_t>(sizeof(T)) >= CurrentTuning().nt_store_saved_bytes;
  return use_nt_stores ? Keep::kNtStores : Keep::kStores;
}

}  // namespace

template <class T>
int64_t SavedSize(const CellRecipe& recipe, const RnnShape& shape, bool checkpoint) {
  if (!checkpoint) return shape.time * ElementsOf(KeptSizes<T>(recipe, shape));
  const int64_t states = shape.batch * PaddedUnits<T>(shape.hidden);
  return SegmentsOf(shape) * states * recipe.cell_parts();
}

template <class T>
void ForwardLayer(const PackedLayer<T>& packed, const RnnForwardArgs<T>& args,
                  const RnnOptions<T>& options, RnnMemory<T>& memory) {
  const CellRecipe& recipe = packed.call().recipe;
  const RnnShape& shape = args.inputs.shape;
  const bool all = args.saved && !options.checkpoint;
  const SlotSizes kept = KeptSizes<T>(recipe, shape), step = StepSizes<T>(recipe, shape);
  const Keep keep =
      all ? KeepAt(recipe, args.saved, shape.time * ElementsOf(kept)) : Keep::kNothing;
  const LayerCall<T> layer(packed, args.inputs, options, keep);
  const ForwardPass<T> forward(layer);
  Slots<T> slots;
  if (all) slots = Slots<T>(args.saved, kept, 0, shape.time);
  slots.Fill(memory.step.Get(ElementsOf(step)), step);
  const int64_t chunk_steps = std::min(layer.ChunkSteps(), layer.segment_steps());
  ForwardState<T> state{};
  const int64_t h_size = layer.h_rows().size(), c_size = layer.c_rows().size();
  state.h = memory.state.Get(h_size + c_size + (layer.projects() ? layer.states() : 0));
  state.c = state.h + h_size;
  if (layer.projects()) state.unprojected = state.c + c_size;
  if (!layer.in_place()) state.zx = memory.zx.Get(chunk_steps * layer.sums());
  if (recipe.over == Over::kBatch) state.active = memory.active.Get(shape.batch);
  layer.h_rows().Pad(args.inputs.h0, state.h);
  layer.c_rows().Pad(args.inputs.c0, state.c);
  // Calls f(chunk) for the times whose input products are computed together, and saves the
  // checkpoints of the sequences [begin, end).
  const auto for_chunks = [&](int64_t begin, int64_t end, const auto& f) {
    for (int64_t segment = 0; segment < layer.segments(); ++segment) {
      if (args.saved && options.checkpoint && recipe.is_lstm()) {
        const int64_t row = layer.c_rows().row(), at = begin * row;
        std::copy_n(state.c + at, (end - begin) * row, args.saved + segment * c_size + at);
      }
      const Times times = layer.TimesOf(segment);
      for (int64_t done = 0; done < times.end - times.begin; done += chunk_steps) {
        const int64_t steps = std::min(chunk_steps, times.end - times.begin - done);
        const int64_t first = args.inputs.reverse ? times.end - done - steps : times.begin + done;
        f(Times{first, first + steps});
      }
    }
  };
  if (forward.independent()) {
    layer.ForSequences(shape.time, [&](int64_t begin, int64_t end) {
      ForwardState<T> own = state;
      own.own = true;
      own.zx += begin * chunk_steps * packed.order().columns;
      for_chunks(begin, end, [&](Times chunk) {
        own.first = chunk.begin;
        forward.InputProduct(chunk, begin, end, own.zx);
        forward.Steps(chunk, begin, end, own, slots, args.y);
      });
    });
  } else {
    for_chunks(0, shape.batch, [&](Times chunk) {
      state.first = chunk.begin;
      if (layer.in_place()) state.zx = slots.At(kXhatIh, chunk.begin);
      forward.InputProduct(chunk, state.zx);
      layer.ForSequences(chunk.end - chunk.begin, [&](int64_t begin, int64_t end) {
        forward.Steps(chunk, begin, end, state, slots, args.y);
      });
    });
  }
  layer.h_rows().Unpad(state.h, args.h_n);
  layer.c_rows().Unpad(state.c, args.c_n);
}

template <class T>
void BackwardLayer(const PackedLayer<T>& packed, const RnnBackwardArgs<T>& args,
                   const RnnOptions<T>& options, ParamSums<T>* shared, RnnMemory<T>& memory) {
  const RnnInputs<T>& in = args.inputs;
  const RnnShape& shape = in.shape;
  const CellRecipe& recipe = packed.call().recipe;
  const int64_t columns = packed.order().columns;
  // With checkpoints, a segment's steps are recomputed to fill the slots.
  const bool again = options.checkpoint;
  const LayerCall<T> layer(packed, in, options, again ? Keep::kStores : Keep::kNothing);
  const ForwardPass<T> forward(layer);
  const BackwardPass<T> backward(layer, args);
  const PaddedStates<T>&h_rows = layer.h_rows(), &c_rows = layer.dc_rows();
  const int64_t rows = layer.segment_steps() * shape.batch, states = layer.states();

  ParamSums<T>& sums = shared ? *shared : memory.sums;
  if (!shared) sums.Reset(packed);
  const int64_t groups = std::max<int64_t>(1, layer.groups());
  const int64_t reset_size = groups * (h_rows.padded() + c_rows.row());
  T* const reset_sums = memory.reset_sums.Get(reset_size);
  std::fill_n(reset_sums, reset_size, T{0});
  const GroupSums<T> group_sums{.cell = sums.Groups(groups),
                                .h_reset = reset_sums,
                                .c_reset = reset_sums + groups * h_rows.padded()};
  // `shared` copies x, because it multiplies the rows in a later call, when the caller can have
  // freed x. Past the length of a sequence, x must not be read.
  const bool own_x = shared || in.lengths;
  const RnnParams<T>& dparams = args.dparams;
  const Weights weights = shared
                              ? kAllWeights
                              : Weights{dparams.weight_ih != nullptr, dparams.weight_hh != nullptr,
                                        dparams.weight_hr != nullptr};
  const int64_t capacity = shared && rows > 0 ? (kProductRows + rows - 1) / rows * rows : rows;

  const int64_t of_units = (layer.projects() ? 4 : 3) * states;
  T* const state = memory.gradients.Get(of_units + 2 * c_rows.size() + 2 * h_rows.size());
  T* const c_states = state + of_units;
  T* const h_states = c_states + 2 * c_rows.size();
  int64_t* const active = memory.active.Get(recipe.over == Over::kBatch ? shape.batch : 0);
  StateGradients<T> gradients{
      .dh = h_states,
      .dc = c_states,
      .dcell = state,
      .workspace = state + states,
      .h_after = state + 2 * states,
      .dunprojected = layer.projects() ? state + 3 * states : nullptr,
      .dzx = nullptr,
      .dzh = nullptr,
      .h_before = nullptr,
      .dprojected = nullptr,
      .unprojected = nullptr,
      .first = 0,
      .active = active,
  };
  h_rows.Pad(args.dh_n, gradients.dh);
  c_rows.Pad(args.dc_n, gradients.dc);
  // The product that computes dunprojected does not write its padding, which the norms read.
  if (layer.projects()) layer.unit_rows().Pad(nullptr, gradients.dunprojected);

  const SlotSizes kept = KeptSizes<T>(recipe, shape), step = StepSizes<T>(recipe, shape);
  T* const anew = memory.anew.Get(again ? layer.segment_steps() * ElementsOf(kept) : 0);
  T* const step_memory = memory.step.Get(again ? ElementsOf(step) : 0);
  T* const zx = memory.zx.Get(again && !layer.in_place() ? rows * columns : 0);
  ForwardState<T> restored{
      .h = h_states + h_rows.size(),
      .c = c_states + c_rows.size(),
      .zx = zx,
      // The restored steps of a time are done with it before the gradients are computed.
      .unprojected = gradients.dunprojected,
      .first = 0,
      .active = active};
  // The last allocation. If it or an earlier one throws, no output and no sum of `shared` has
  // changed.
  sums.Reserve(capacity, own_x, weights);

  for (int64_t segment = layer.segments() - 1; segment >= 0; --segment) {
    const Times times = layer.TimesOf(segment);
    const int64_t steps = times.end - times.begin, m = steps * shape.batch;
    if (!sums.HasSpaceFor(m)) sums.Multiply(nullptr, kAllWeights, options.parallel_for);
    const typename ParamSums<T>::Rows to = sums.Add(m, capacity, own_x);
    gradients.dzx = to.dzx;
    gradients.dzh = to.dzh;
    gradients.h_before = to.h_before;
    gradients.dprojected = to.dprojected;
    gradients.unprojected = to.unprojected;
    gradients.first = restored.first = times.begin;
    Slots<T> filled;
    Slots<const T> slots;
    if (again) {
      filled = Slots<T>(anew, kept, times.begin, steps);
      slots = Slots<const T>(anew, kept, times.begin, steps);
      filled.Fill(step_memory, step);
      const T* c = recipe.is_lstm() ? args.saved + segment * c_rows.size() : nullptr;
      forward.Restore(times, args.y, c, restored);
      if (layer.in_place()) restored.zx = filled.At(kXhatIh, times.begin);
      forward.InputProduct(times, restored.zx);
    } else {
      slots = Slots<const T>(args.saved, kept, 0, shape.time);
    }
    layer.ForGroups(steps, [&](int64_t begin, int64_t end) {
      if (again) forward.Steps(times, begin, end, restored, filled, nullptr);
      backward.Steps(times, begin, end, slots, gradients, group_sums);
    });
    if (own_x) backward.CopyWithoutPadding(times, to.x);
    if (!shared || sums.waiting() >= kProductRows) {
      const T* x = own_x ? nullptr : in.x + times.begin * shape.batch * shape.inputs;
      sums.Multiply(x, weights, options.parallel_for);
    }
    if (args.dx) {
      MultiplyAll<T>({.rows = m,
                      .a = gradients.dzx,
                      .a_stride = columns,
                      .c = args.dx + times.begin * shape.batch * shape.inputs,
                      .c_stride = shape.inputs},
                     packed.ih_transposed(), options.parallel_for);
    }
  }

  h_rows.Unpad(gradients.dh, args.dh0);
  c_rows.Unpad(gradients.dc, args.dc0);
  if (!shared) sums.Write(args.dparams, options.parallel_for);
  const auto write = [&](const PaddedStates<T>& of, T* sum, T* to) {
    for (int64_t j = 0; j < (groups - 1) * of.row(); ++j) sum[j % of.row()] += sum[of.row() + j];
    if (to) of.UnpadRow(sum, to);
  };
  write(h_rows, group_sums.h_reset, args.dh_reset);
  write(c_rows, group_sums.c_reset, args.dc_reset);
}

#define PLANISH_INSTANTIATE(T)                                                  \
  template int64_t SavedSize<T>(const CellRecipe&, const RnnShape&, bool);      \
  template void ForwardLayer(const PackedLayer<T>&, const RnnForwardArgs<T>&,   \
                             const RnnOptions<T>&, RnnMemory<T>&);              \
  template void BackwardLayer(const PackedLayer<T>&, const RnnBackwardArgs<T>&, \
                              const RnnOptions<T>&, ParamSums<T>*, RnnMemory<T>&);
PLANISH_RNN_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal
