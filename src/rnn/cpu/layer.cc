#include "src/rnn/cpu/layer.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/aligned.h"
#include "src/base/loop.h"
#include "src/base/simd/gemm.h"
#include "src/base/tuning.h"
#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/order.h"

// Sequences depend on each other only through the parameters, so threads process separate
// sequences. If there are few, or the weights exceed a thread's own cache, threads split the
// columns of each step's matrix product instead.
//
// Gradients of parameters are summed in groups of sequences that depend only on the shape. Time is
// split into segments: weight gradients are one matrix product a segment, and a checkpoint restores
// one segment.
namespace planish::internal {
namespace {

/// The largest number of groups of sequences, which bounds the threads; each group needs sums for
/// every gain and bias. kGroup is the least number of sequences in a group: a product of fewer rows
/// takes as long, because it is bound by reading the weights.
constexpr int64_t kMaxGroups = 16, kGroup = 4;

/// The cost of the gates of a sum, and of a norm over the batch (three passes), in elements.
constexpr int64_t kRowElements = 8, kColumnElements = 4;

/// Returns S of RnnOptions.
int64_t SegmentSteps(const RnnShape& shape) {
  auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(shape.time)));
  while (root * root < shape.time) ++root;
  const int64_t batch = std::max<int64_t>(1, shape.batch);
  return std::max({int64_t{1}, root, (kProductRows + batch - 1) / batch});
}

int64_t SegmentsOf(const RnnShape& shape) {
  const int64_t steps = SegmentSteps(shape);
  return shape.time / steps + (shape.time % steps != 0);
}

// --- What a step computes, and what of it is saved for backward ---

enum Slot : uint8_t {
  kZh,         ///< zh, unless the matrix product adds it to zx
  kScaled,     ///< the sums after their norms, if zx is saved
  kScaledN,    ///< a GRU's ah_n after its norm, if zh is saved
  kXhatIh,     ///< the normalized zx, or zx + zh
  kXhatHh,     ///< the normalized zh
  kGates,      ///< the gates after their activations
  kCandidate,  ///< a GRU's ah_n
  kBefore,     ///< the cell state before the step
  kTanhC,      ///< tanh of the c that h uses
  kXhatC,      ///< over the batch: the normalized c
  kRstdIh,     ///< rstd of each norm: of a row, or, over the batch, of a column
  kRstdHh,
  kMapC,  ///< coefficients of c, kMap for a row; over the batch rstd of a column
  kSlots,
};

using SlotSizes = std::array<int64_t, kSlots>;

int64_t NumbersOf(const SlotSizes& sizes) {
  int64_t sum = 0;
  for (const int64_t size : sizes) sum += size;
  return sum;
}

/// Returns the elements of each slot that one step of the whole batch saves for backward.
template <class T>
SlotSizes KeptSizes(const CellRecipe& recipe, const RnnShape& shape) {
  const int64_t padded = PaddedUnits<T>(shape.hidden), columns = recipe.gates() * padded;
  const int64_t states = shape.batch * padded, sums = shape.batch * columns;
  const bool any = recipe.sums != Sums::kPlain, apart = recipe.sums == Sums::kSeparate;
  const bool over_rows = recipe.over == Over::kRow, cell = recipe.cell != CellNorm::kNone;
  const int64_t rstds = over_rows ? shape.batch * recipe.norms() : columns;
  const int64_t maps_c = over_rows ? shape.batch * kMap : padded;
  SlotSizes sizes{};
  sizes[kXhatIh] = any ? sums : 0;
  sizes[kXhatHh] = apart ? sums : 0;
  sizes[kGates] = recipe.is_lstm() || recipe.is_gru() ? sums : 0;
  sizes[kCandidate] = recipe.is_gru() ? states : 0;
  sizes[kBefore] = sizes[kTanhC] = recipe.is_lstm() ? states : 0;
  sizes[kXhatC] = cell && !over_rows ? states : 0;
  sizes[kRstdIh] = any ? rstds : 0;
  sizes[kRstdHh] = apart ? rstds : 0;
  sizes[kMapC] = cell ? maps_c : 0;
  return sizes;
}

/// Returns the elements of the slots that a step needs besides those that are saved.
template <class T>
SlotSizes StepSizes(const CellRecipe& recipe, const RnnShape& shape) {
  SlotSizes sizes = KeptSizes<T>(recipe, shape);
  const int64_t sums = shape.batch * recipe.gates() * PaddedUnits<T>(shape.hidden);
  if (recipe.sums == Sums::kSeparate || recipe.is_gru()) sizes[kZh] = sums;
  if (recipe.over == Over::kRow) sizes[kRstdIh] = sizes[kRstdHh] = 0;
  for (const Slot slot : {kXhatIh, kXhatHh, kGates, kCandidate, kBefore, kTanhC}) sizes[slot] = 0;
  if (recipe.sums != Sums::kPlain) sizes[kScaled] = sums;
  if (recipe.sums != Sums::kPlain && recipe.is_gru()) sizes[kScaledN] = sums / recipe.gates();
  return sizes;
}

/// The slots of some steps in an array of T or const T, indexed by the time of the step.
template <class E>
class Slots {
 public:
  Slots() = default;
  /// Places the slots of the times [first, first + steps) in `data`.
  Slots(E* data, const SlotSizes& sizes, int64_t first, int64_t steps) : first_(first) {
    for (size_t s = 0; s < kSlots; ++s) {
      if (sizes[s] == 0) continue;
      slots_[s] = data;
      strides_[s] = sizes[s];
      data += sizes[s] * steps;
    }
  }
  /// Sets the saved elements of row `row` of `rows` at the time t to zero.
  void ClearRow(int64_t t, int64_t row, int64_t rows, Over over) const {
    const size_t end = over == Over::kBatch ? kRstdIh : kSlots;
    for (size_t s = 0; s < end; ++s) {
      const int64_t size = strides_[s] / rows;
      if (size > 0) std::fill_n(At(static_cast<Slot>(s), t, row * size), size, E{0});
    }
  }
  /// Places absent slots in the memory of one step, which every step overwrites.
  void Fill(E* data, const SlotSizes& sizes) {
    for (size_t s = 0; s < kSlots; ++s) {
      if (!slots_[s] && sizes[s] > 0) slots_[s] = data;
      data += sizes[s];
    }
  }
  bool Has(Slot slot) const { return slots_[slot] != nullptr; }
  /// Returns the address of element `offset` of a slot at the time t, or null.
  E* At(Slot slot, int64_t t, int64_t offset = 0) const {
    return Has(slot) ? slots_[slot] + strides_[slot] * (t - first_) + offset : nullptr;
  }

 private:
  std::array<E*, kSlots> slots_{};
  SlotSizes strides_{};
  int64_t first_ = 0;
};

/// Returns how a layer writes `numbers` elements that backward reads after all are written.
template <class T>
Keep KeepAt(const CellRecipe& recipe, const T* saved, int64_t numbers) {
  // Non-temporal stores need aligned vectors. Norms over the batch read what they saved.
  const bool aligned = reinterpret_cast<uintptr_t>(saved) % kAlignment == 0;
  const bool past = aligned && recipe.over == Over::kRow &&
                    KeepsPastCaches(numbers * static_cast<int64_t>(sizeof(T)));
  return past ? Keep::kPastCaches : Keep::kInCaches;
}

// --- A layer ---

struct Times {
  int64_t begin, end;  ///< of x and y, in either direction
};

/// The parts common to both directions. Methods with [begin, end) process these sequences.
template <class T>
class Layer {
 public:
  Layer(const PackedLayer<T>& packed, const RnnInputs<T>& inputs, const RnnOptions<T>& options,
        Keep keep)
      : packed_(packed),
        kernels_(packed.kernels()),
        call_(packed.call()),
        recipe_(call_.recipe),
        order_(call_.order),
        in_(inputs),
        parallel_for_(options.parallel_for),
        time_(inputs.shape.time),
        batch_(inputs.shape.batch),
        inputs_(inputs.shape.inputs),
        hidden_(inputs.shape.hidden),
        padded_(order_.padded),
        columns_(order_.columns),
        segment_steps_(SegmentSteps(inputs.shape)),
        together_(recipe_.over == Over::kBatch || batch_ < kMinSplitSequences ||
                  packed.hh().matrix_bytes() > OwnWeightBytes()) {
    call_.eps = static_cast<T>(options.eps);
    call_.keep = keep;
  }

  /// Returns whether zx and zh are computed in the memory that saves their xhat, which avoids a
  /// second copy in the caches.
  bool in_place() const { return call_.keep == Keep::kInCaches && recipe_.sums != Sums::kPlain; }

  int64_t states() const { return batch_ * padded_; }
  int64_t sums() const { return batch_ * columns_; }
  int64_t segments() const { return SegmentsOf(in_.shape); }
  int64_t segment_steps() const { return std::min(segment_steps_, time_); }

  /// Returns the times of a segment. Segments are numbered in the order of steps.
  Times TimesOf(int64_t segment) const {
    const int64_t first = segment * segment_steps_;
    const int64_t last = std::min(time_, first + segment_steps_);
    return in_.reverse ? Times{time_ - last, time_ - first} : Times{first, last};
  }

  /// Returns the steps whose input products are computed together. Does not affect the results.
  int64_t ChunkSteps() const {
    return std::max<int64_t>(1, kInputRows / std::max<int64_t>(1, batch_));
  }

  /// Calls f(begin, end) for ranges of the sequences, on several threads if there are many.
  template <class F>
  void ForSequences(int64_t steps, const F& f) const {
    if (together_) return f(int64_t{0}, batch_);
    const int64_t products = std::max<int64_t>(1, steps) * columns_ * hidden_;
    SplitSequences(std::max<int64_t>(1, kGrainProducts / products), f);
  }

  /// Calls f(begin, end) for ranges of whole groups of sequences, on several threads if there are
  /// many.
  template <class F>
  void ForGroups(int64_t steps, const F& f) const {
    if (together_) return f(int64_t{0}, batch_);
    const int64_t products = std::max<int64_t>(1, steps) * columns_ * hidden_ * batch_ / groups();
    SplitGroups(std::max<int64_t>(1, kGrainProducts / products), f);
  }

  int64_t groups() const {
    return recipe_.over == Over::kBatch ? std::min<int64_t>(batch_, 1)
                                        : std::min((batch_ + kGroup - 1) / kGroup, kMaxGroups);
  }
  int64_t GroupBegin(int64_t group) const { return group * batch_ / groups(); }

  /// Returns the group of sequence b.
  int64_t GroupOf(int64_t b) const {
    int64_t group = b * groups() / batch_;
    while (GroupBegin(group + 1) <= b) ++group;
    return group;
  }

  bool Active(int64_t t, int64_t b) const { return !in_.lengths || t < in_.lengths[b]; }
  bool Reset(int64_t t, int64_t b) const { return in_.resets && in_.resets[t * batch_ + b] != 0; }

  /// Calls f(b) for the sequences longer than t.
  template <class F>
  void ForActive(int64_t t, int64_t begin, int64_t end, const F& f) const {
    for (int64_t b = begin; b < end; ++b) {
      if (Active(t, b)) f(b);
    }
  }

  /// Calls f(first, last) for each run of adjacent sequences longer than t.
  template <class F>
  void ForRuns(int64_t t, int64_t begin, int64_t end, const F& f) const {
    while (begin < end) {
      if (!Active(t, begin)) {
        ++begin;
        continue;
      }
      int64_t last = begin + 1;
      while (last < end && Active(t, last)) ++last;
      f(begin, last);
      begin = last;
    }
  }

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

  // --- Forward ---

  /// The state of all sequences, and zx from the time `first` on.
  struct State {
    T *h, *c, *zx;
    int64_t first;
    int64_t* active;   ///< [B] only over the batch: indices of the active sequences
    bool own = false;  ///< zx has only the rows of the thread's sequences
  };

  /// Returns whether each thread processes its sequences from x to y independently. Not with
  /// in_place(), where matrix products of few rows would write scattered parts.
  bool apart() const { return !together_ && !in_place(); }

  /// Computes zx of the sequences [begin, end), with the rows of a step adjacent.
  void InputProduct(Times times, int64_t begin, int64_t end, T* zx) const {
    Multiply<T>({.rows = (times.end - times.begin) * (end - begin),
                 .a = in_.x + (times.begin * batch_ + begin) * inputs_,
                 .a_stride = inputs_,
                 .a_block = end - begin,
                 .a_block_stride = batch_ * inputs_,
                 .c = zx,
                 .c_stride = columns_},
                packed_.ih(), 0, packed_.ih().panels());
  }
  /// Computes zx of all sequences.
  void InputProduct(Times times, T* zx) const {
    MultiplyAll<T>({.rows = (times.end - times.begin) * batch_,
                    .a = in_.x + times.begin * batch_ * inputs_,
                    .a_stride = inputs_,
                    .c = zx,
                    .c_stride = columns_},
                   packed_.ih(), parallel_for_);
  }

  /// Computes the steps of some times. y is null if they are recomputed.
  void ForwardSteps(Times times, int64_t begin, int64_t end, const State& state,
                    const Slots<T>& slots, T* y) const {
    for (int64_t i = 0; i < times.end - times.begin; ++i) {
      const int64_t t = in_.reverse ? times.end - 1 - i : times.begin + i;
      ForwardStep(t, begin, end, state, slots, y);
    }
    if (!together_) FinishStores();
  }

  // --- Backward ---

  /// The gradients of the state of all sequences; for a segment from the time `first` on, those of
  /// zx and zh, and the state before each step.
  struct Gradients {
    T *dh, *dc, *dcell, *room, *h_after;
    T *dzx, *dzh, *h_before;
    int64_t first;
    int64_t* active;
  };
  /// Sums of each group of sequences: of the parameters, and of the states after resets [groups,
  /// padded].
  struct GroupSums {
    const std::vector<CellSums<T>>& cell;
    T *h_reset, *c_reset;
  };

  void BackwardSteps(Times times, int64_t begin, int64_t end, const RnnBackwardArgs<T>& args,
                     const Slots<const T>& slots, const PackedMatrix<T>& hh_transposed,
                     const Gradients& gradients, const GroupSums& sums) const {
    for (int64_t i = 0; i < times.end - times.begin; ++i) {
      const int64_t t = in_.reverse ? times.begin + i : times.end - 1 - i;
      BackwardStep(t, begin, end, args, slots, hh_transposed, gradients, sums);
    }
  }

  /// Restores the state before a segment, to recompute it; `c` is the checkpoint.
  void RestoreState(Times times, const T* y, const T* c, const State& state) const {
    const int64_t t = in_.reverse ? times.end - 1 : times.begin;
    const bool first = in_.reverse ? times.end == time_ : times.begin == 0;
    Pad(in_.h0, state.h);
    for (int64_t b = 0; !first && b < batch_; ++b) {
      const int64_t before = in_.reverse ? t + 1 : t - 1;
      if (Active(before, b)) PadRow(y + (before * batch_ + b) * hidden_, state.h, b);
    }
    if (recipe_.is_lstm()) std::copy_n(c, states(), state.c);
  }

  /// Copies x of a segment, with zeros past the length of a sequence: x may be NaN there, and NaN
  /// times a gradient of 0 would be NaN.
  void CopyWithoutPadding(Times times, T* copy) const {
    const T* x = in_.x + times.begin * batch_ * inputs_;
    for (int64_t t = times.begin; t < times.end; ++t) {
      for (int64_t b = 0; b < batch_; ++b, x += inputs_, copy += inputs_) {
        if (Active(t, b)) {
          std::copy_n(x, inputs_, copy);
        } else {
          std::fill_n(copy, inputs_, T{0});
        }
      }
    }
  }

 private:
  /// Makes non-temporal stores visible to other threads. Called at the end of a thread's work.
  void FinishStores() const {
    if (call_.keep == Keep::kPastCaches) hwy::FlushStream();
  }

  /// Computes a step's matrix product: for this thread's sequences, or, if together_, with the
  /// columns split among the threads.
  void StepProduct(const GemmArgs<T>& args, const PackedMatrix<T>& weights) const {
    if (!together_) return Multiply(args, weights, 0, weights.panels());
    const int64_t products = args.rows * weights.panel() * weights.depth();
    RunParallel(parallel_for_, weights.panels(),
                std::max<int64_t>(1, kGrainStepProducts / products),
                [&](int64_t first, int64_t last) { Multiply(args, weights, first, last); });
  }

  // Call f(begin, end) for ranges of the sequences, or of whole groups of them, on several threads.
  template <class F>
  void SplitSequences(int64_t grain, const F& f) const {
    RunParallel(parallel_for_, batch_, grain, f);
  }
  template <class F>
  void SplitGroups(int64_t grain, const F& f) const {
    RunParallel(parallel_for_, groups(), grain,
                [&](int64_t first, int64_t last) { f(GroupBegin(first), GroupBegin(last)); });
  }

  void ForwardStep(int64_t t, int64_t begin, int64_t end, const State& state, const Slots<T>& slots,
                   T* y) const {
    ForActive(t, begin, end, [&](int64_t b) {
      if (!Reset(t, b)) return;
      PadRow(in_.h_reset, state.h, b);
      if (recipe_.is_lstm()) PadRow(in_.c_reset, state.c, b);
    });
    T* zx = state.own ? state.zx + ((t - state.first) * (end - begin) - begin) * columns_
                      : state.zx + (t - state.first) * sums();
    // The product accumulates into zx if only zx + zh is used.
    const bool added = recipe_.sums != Sums::kSeparate && !recipe_.is_gru();
    const bool apart = recipe_.sums == Sums::kSeparate;
    T* zh = added ? zx : slots.At(apart && in_place() ? kXhatHh : kZh, t);
    ForRuns(t, begin, end, [&](int64_t first, int64_t last) {
      StepProduct({.rows = last - first,
                   .a = state.h + first * padded_,
                   .a_stride = padded_,
                   .c = zh + first * columns_,
                   .c_stride = columns_,
                   .accumulate = added},
                  packed_.hh());
    });
    const int64_t rstds = recipe_.over == Over::kRow ? recipe_.norms() : 0;
    const int64_t maps_c = recipe_.over == Over::kRow ? kMap : 0;
    const auto row_of = [&](int64_t b) {
      const int64_t column = b * columns_, unit = b * padded_;
      return CellRow<T>{.zx = zx + column,
                        .zh = zh ? zh + column : nullptr,
                        .a = in_place() ? slots.At(kScaled, t, column) : zx + column,
                        .ah_n = !recipe_.is_gru() ? nullptr
                                : in_place()      ? slots.At(kScaledN, t, unit)
                                                  : zh + column + order_.gate[2].begin,
                        .map_c = slots.At(kMapC, t, b * maps_c),
                        .xhat_c = slots.At(kXhatC, t, unit),
                        .h = state.h + unit,
                        .c = state.c + unit,
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
      if (!Active(t, b)) return slots.ClearRow(t, b, batch_, recipe_.over);
      // An infinite input times a padding weight of 0 would be NaN.
      ClearPadding(zx + b * columns_);
      if (zh) ClearPadding(zh + b * columns_);
    };
    const auto write = [&](int64_t b) {
      if (!y) return;
      T* out = y + (t * batch_ + b) * hidden_;
      if (Active(t, b)) {
        std::copy_n(state.h + b * padded_, hidden_, out);
      } else {
        std::fill_n(out, hidden_, T{0});
      }
    };
    if (recipe_.over == Over::kBatch) {
      for (int64_t b = begin; b < end; ++b) clear(b);
      ForwardBatch(t, state, slots, zx, zh, row_of);
      for (int64_t b = begin; b < end; ++b) write(b);
      return;
    }
    const auto compute = [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        clear(b);
        if (Active(t, b)) {
          const CellRow<T> row = row_of(b);
          kernels_.gates(call_, row);
          ClearBeyondVectors(row);
          if (recipe_.is_lstm()) kernels_.output(call_, row);
        }
        write(b);
      }
    };
    if (!together_) return compute(begin, end);
    SplitSequences(GrainFor(columns_ * kRowElements), [&](int64_t first, int64_t last) {
      compute(first, last);
      FinishStores();
    });
  }

  /// Computes a step of all sequences with norms over the batch.
  template <class F>
  void ForwardBatch(int64_t t, const State& state, const Slots<T>& slots, T* zx, T* zh,
                    const F& row_of) const {
    const BatchColumns<T> rows = ActiveRows(t, state.active);
    ForParts(rows.count, [&](const Part& part) {
      for (int g = 0; g < order_.groups; ++g) {
        NormaliseSums(rows, part, g, zx, slots.At(kRstdIh, t));
        if (recipe_.sums == Sums::kSeparate) NormaliseSums(rows, part, g, zh, slots.At(kRstdHh, t));
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
        kernels_.gates(part.call, of_part(i));
        if (part.last == padded_) ClearBeyondVectors(row_of(rows.rows[i]));
      }
      if (!recipe_.is_lstm()) return;
      T* xhat = slots.At(kXhatC, t);
      Normalise(rows, padded_, state.c + part.first, part.last - part.first, xhat + part.first,
                slots.At(kMapC, t, part.first));
      for (int64_t unit = hidden_; unit < part.last; ++unit) {
        ClearColumn(rows, padded_, unit, xhat, slots.At(kMapC, t));
      }
      for (int64_t i = 0; i < rows.count; ++i) kernels_.output(part.call, of_part(i));
    });
  }

  /// A range of units with statistics over the batch. Everything in a step except its matrix
  /// products can be computed separately for each range.
  struct Part {
    int64_t first, last;
    CellCall<T> call;  ///< the settings for this range; columns are those of the whole layer
  };

  /// Calls f(part) for parts of the layer, on several threads.
  template <class F>
  void ForParts(int64_t rows, const F& f) const {
    constexpr int64_t kLine = kUnitsOfLine<T>;
    const int64_t work = kLine * recipe_.gates() * rows * (kRowElements + 2 * kColumnElements);
    RunParallel(parallel_for_, padded_ / kLine, GrainFor(work), [&](int64_t begin, int64_t end) {
      Part part{begin * kLine, end * kLine, call_};
      Order& order = part.call.order;
      order.hidden = std::min(hidden_, part.last) - part.first;
      for (int64_t g = 0; g < recipe_.gates(); ++g) {
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

  BatchColumns<T> ActiveRows(int64_t t, int64_t* active) const {
    int64_t count = 0;
    ForActive(t, 0, batch_, [&](int64_t b) { active[count++] = b; });
    return {active, count, 0, 0};
  }

  /// Normalizes `columns` columns of rows that are `stride` elements apart.
  void Normalise(BatchColumns<T> rows, int64_t stride, const T* z, int64_t columns, T* xhat,
                 T* rstd) const {
    if (rows.count == 0) {
      std::fill_n(rstd, columns, T{0});
      return;
    }
    rows.stride = stride;
    rows.columns = columns;
    kernels_.batch_norm(rows, z, call_.eps, xhat, rstd);
  }
  /// Normalizes the sums z of one group of gates in place.
  void NormaliseSums(const BatchColumns<T>& rows, const Part& part, int g, T* z, T* rstd) const {
    const Order::Group& group = part.call.order.group[static_cast<size_t>(g)];
    const int64_t columns = (part.last - part.first) * group.gates;
    Normalise(rows, columns_, z + group.begin, columns, z + group.begin, rstd + group.begin);
    if (part.last <= hidden_) return;
    for (int64_t column = group.begin; column < group.begin + columns; ++column) {
      if (packed_.rows()[column] < 0) ClearColumn(rows, columns_, column, z, rstd);
    }
  }
  /// Sets a column of padding to 0. Its variance is 0, so with eps = 0 it would be NaN.
  static void ClearColumn(const BatchColumns<T>& rows, int64_t stride, int64_t column, T* xhat,
                          T* rstd) {
    rstd[column] = 0;
    for (int64_t i = 0; i < rows.count; ++i) xhat[rows.rows[i] * stride + column] = 0;
  }

  /// Returns the state before a step, or null for zeros.
  const T* StateBefore(int64_t t, int64_t b, const T* y) const {
    if (Reset(t, b)) return in_.h_reset;
    const int64_t length = in_.lengths ? in_.lengths[b] : time_;
    if (t == (in_.reverse ? length - 1 : 0)) return in_.h0 ? in_.h0 + b * hidden_ : nullptr;
    return y + ((in_.reverse ? t + 1 : t - 1) * batch_ + b) * hidden_;
  }

  void BackwardStep(int64_t t, int64_t begin, int64_t end, const RnnBackwardArgs<T>& args,
                    const Slots<const T>& slots, const PackedMatrix<T>& hh_transposed,
                    const Gradients& to, const GroupSums& sums) const {
    T *dzx = to.dzx + (t - to.first) * this->sums(), *dzh = to.dzh + (t - to.first) * this->sums();
    T* h_before = to.h_before + (t - to.first) * states();
    const bool rnn = !recipe_.is_lstm() && !recipe_.is_gru();
    const auto prepare = [&](int64_t b) {
      if (!Active(t, b)) {
        PadRow(nullptr, h_before, b);
        std::fill_n(dzx + b * columns_, columns_, T{0});
        std::fill_n(dzh + b * columns_, columns_, T{0});
        return;
      }
      PadRow(StateBefore(t, b, args.y), h_before, b);
      const int64_t at = (t * batch_ + b) * hidden_;
      if (rnn) PadRow(args.y + at, to.h_after, b);
      for (int64_t k = 0; args.dy && k < hidden_; ++k) to.dh[b * padded_ + k] += args.dy[at + k];
    };
    // The matrix product reads the padding, which the kernels need not write.
    const auto clear = [&](int64_t b) {
      ClearPadding(dzx + b * columns_);
      ClearPadding(dzh + b * columns_);
    };
    const int64_t rstds = recipe_.over == Over::kRow ? recipe_.norms() : 0;
    const int64_t maps_c = recipe_.over == Over::kRow ? kMap : 0;
    const auto row_of = [&](int64_t b) {
      const int64_t column = b * columns_, unit = b * padded_;
      return CellRowBackward<T>{.xhat_ih = slots.At(kXhatIh, t, column),
                                .xhat_hh = slots.At(kXhatHh, t, column),
                                .rstd_ih = slots.At(kRstdIh, t, b * rstds),
                                .rstd_hh = slots.At(kRstdHh, t, b * rstds),
                                .map_c = slots.At(kMapC, t, b * maps_c),
                                .gates = slots.At(kGates, t, column),
                                .candidate = slots.At(kCandidate, t, unit),
                                .before = slots.At(kBefore, t, unit),
                                .tanh_c = slots.At(kTanhC, t, unit),
                                .h_before = h_before + unit,
                                .h_after = to.h_after + unit,
                                .dh = to.dh + unit,
                                .dc = to.dc + unit,
                                .dcell = to.dcell + unit,
                                .room = to.room + unit,
                                .dzx = dzx + column,
                                .dzh = dzh + column};
    };
    if (recipe_.over == Over::kBatch) {
      for (int64_t b = begin; b < end; ++b) prepare(b);
      BackwardBatch(t, slots, to, dzx, dzh, row_of, sums.cell[0]);
      ForActive(t, begin, end, clear);
    } else {
      const auto compute = [&](int64_t first, int64_t last) {
        for (int64_t b = first; b < last; ++b) prepare(b);
        ForActive(t, first, last, [&](int64_t b) {
          const CellRowBackward<T> row = row_of(b);
          if (b + 1 < last) PrefetchRow(row_of(b + 1));
          const CellSums<T>& group = sums.cell[static_cast<size_t>(GroupOf(b))];
          if (recipe_.is_lstm()) kernels_.output_backward(call_, row, group);
          kernels_.gates_backward(call_, row, group);
          clear(b);
        });
      };
      if (together_) {
        SplitGroups(GrainFor(columns_ * kRowElements * batch_ / std::max<int64_t>(1, groups())),
                    compute);
      } else {
        compute(begin, end);
      }
    }
    ForRuns(t, begin, end, [&](int64_t first, int64_t last) {
      // The gradient of a GRU's state also bypasses the product.
      StepProduct({.rows = last - first,
                   .a = dzh + first * columns_,
                   .a_stride = columns_,
                   .c = to.dh + first * padded_,
                   .c_stride = padded_,
                   .accumulate = recipe_.is_gru()},
                  hh_transposed);
    });
    ForActive(t, begin, end, [&](int64_t b) {
      if (!Reset(t, b)) return;
      const int64_t group = GroupOf(b) * padded_;
      Move(to.dh + b * padded_, sums.h_reset + group);
      if (recipe_.is_lstm()) Move(to.dc + b * padded_, sums.c_reset + group);
    });
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
      for (int64_t g = 0; g < recipe_.gates(); ++g) {
        const Order::Gate& gate = order_.gate[static_cast<size_t>(g)];
        row[gate.begin + vector * gate.step + lane] = 0;
      }
    }
  }

  /// Prefetches what forward saved of a row, which has left the caches, during the work on another
  /// row.
  void PrefetchRow(const CellRowBackward<T>& row) const {
    for (const T* sums : {row.xhat_ih, row.xhat_hh, row.gates}) {
      for (int64_t j = 0; sums && j < columns_; j += kUnitsOfLine<T>) __builtin_prefetch(sums + j);
    }
    for (const T* units : {row.candidate, row.before, row.tanh_c}) {
      for (int64_t j = 0; units && j < padded_; j += kUnitsOfLine<T>) __builtin_prefetch(units + j);
    }
  }

  /// Computes a backward step without its matrix product, with norms over the batch.
  template <class F>
  void BackwardBatch(int64_t t, const Slots<const T>& slots, const Gradients& to, T* dzx, T* dzh,
                     const F& row_of, const CellSums<T>& sums) const {
    const BatchColumns<T> rows = ActiveRows(t, to.active);
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
        for (T** units : {&row.dh, &row.dc, &row.dcell, &row.room}) {
          if (*units) *units += part.first;
        }
        return row;
      };
      const auto normalise = [&](int64_t stride, int64_t first, int64_t columns, T* d,
                                 const T* xhat, const T* rstd, const T* gain, T* dgain) {
        const BatchColumns<T> some{rows.rows, rows.count, stride, columns};
        kernels_.batch_norm_backward(some, d + first, xhat + first, rstd + first, gain + first,
                                     dgain + first);
      };
      if (recipe_.is_lstm()) {
        for (int64_t i = 0; i < rows.count; ++i) {
          kernels_.output_backward(part.call, of_part(i), part_sums);
        }
        normalise(padded_, part.first, part.last - part.first, to.dcell, slots.At(kXhatC, t),
                  slots.At(kMapC, t), call_.params.gain_c, sums.gain_c);
      }
      for (int64_t i = 0; i < rows.count; ++i) {
        kernels_.gates_backward(part.call, of_part(i), part_sums);
      }
      for (int g = 0; g < order_.groups; ++g) {
        const Order::Group& group = part.call.order.group[static_cast<size_t>(g)];
        const int64_t columns = (part.last - part.first) * group.gates;
        // The gradients of zx and zh are equal, except for a GRU's n.
        for (int64_t i = 0; recipe_.is_lstm() && i < rows.count; ++i) {
          const int64_t at = rows.rows[i] * columns_ + group.begin;
          std::copy_n(dzh + at, columns, dzx + at);
        }
        normalise(columns_, group.begin, columns, dzx, slots.At(kXhatIh, t), slots.At(kRstdIh, t),
                  call_.params.gain_ih, sums.gain_ih);
        if (recipe_.sums == Sums::kSeparate) {
          normalise(columns_, group.begin, columns, dzh, slots.At(kXhatHh, t), slots.At(kRstdHh, t),
                    call_.params.gain_hh, sums.gain_hh);
        }
      }
    });
  }

  /// Adds a state's gradient to a sum, and sets it to 0.
  void Move(T* d, T* sum) const {
    for (int64_t k = 0; k < hidden_; ++k) sum[k] += d[k];
    std::fill_n(d, padded_, T{0});
  }

  const PackedLayer<T>& packed_;
  const CellKernels<T>& kernels_;
  CellCall<T> call_;
  const CellRecipe& recipe_;
  const Order& order_;
  const RnnInputs<T>& in_;
  const ParallelFor& parallel_for_;
  const int64_t time_, batch_, inputs_, hidden_, padded_, columns_, segment_steps_;
  /// Whether threads split each step and synchronize after its product and at its end. Otherwise
  /// each thread computes all steps of its own sequences.
  const bool together_;
};

}  // namespace

template <class T>
int64_t RnnMemory<T>::bytes() const {
  int64_t sum = packed.bytes() + active.bytes() + sums.bytes();
  for (const Buffer<T>* buffer : {&state, &zx, &step, &gradients, &reset_sums, &anew}) {
    sum += buffer->bytes();
  }
  return sum;
}

namespace {
/// Returns the thread's workspace; null while a call uses it.
template <class T>
std::unique_ptr<RnnMemory<T>>& KeptMemory() {
  thread_local std::unique_ptr<RnnMemory<T>> kept;
  return kept;
}
}  // namespace

// A nested call, from the outer call's parallel_for, has its own workspace.
template <class T>
ThreadMemory<T>::ThreadMemory() : memory_(std::move(KeptMemory<T>())) {
  if (!memory_) memory_ = std::make_unique<RnnMemory<T>>();
}
template <class T>
ThreadMemory<T>::~ThreadMemory() {
  if (memory_->bytes() <= kKeptBytes) KeptMemory<T>() = std::move(memory_);
}

template <class T>
int64_t SavedSize(const CellRecipe& recipe, const RnnShape& shape, bool checkpoint) {
  if (!checkpoint) return shape.time * NumbersOf(KeptSizes<T>(recipe, shape));
  const int64_t states = shape.batch * PaddedUnits<T>(shape.hidden);
  return recipe.is_lstm() ? SegmentsOf(shape) * states : 0;
}

template <class T>
void ForwardLayer(const PackedLayer<T>& packed, const RnnForwardArgs<T>& args,
                  const RnnOptions<T>& options, RnnMemory<T>& memory) {
  const CellRecipe& recipe = packed.call().recipe;
  const RnnShape& shape = args.inputs.shape;
  const bool all = args.saved && !options.checkpoint;
  const SlotSizes kept = KeptSizes<T>(recipe, shape), step = StepSizes<T>(recipe, shape);
  const Keep keep = all ? KeepAt(recipe, args.saved, shape.time * NumbersOf(kept)) : Keep::kNothing;
  const Layer<T> layer(packed, args.inputs, options, keep);
  Slots<T> slots;
  if (all) slots = Slots<T>(args.saved, kept, 0, shape.time);
  slots.Fill(memory.step.Get(NumbersOf(step)), step);
  const int64_t chunk_steps = std::min(layer.ChunkSteps(), layer.segment_steps());
  typename Layer<T>::State state{};
  state.h = memory.state.Get(2 * layer.states());
  state.c = state.h + layer.states();
  if (!layer.in_place()) state.zx = memory.zx.Get(chunk_steps * layer.sums());
  if (recipe.over == Over::kBatch) state.active = memory.active.Get(shape.batch);
  layer.Pad(args.inputs.h0, state.h);
  layer.Pad(args.inputs.c0, state.c);
  // Calls f(chunk) for the times whose input products are computed together, and saves the
  // checkpoints of the sequences [begin, end).
  const auto for_chunks = [&](int64_t begin, int64_t end, const auto& f) {
    for (int64_t segment = 0; segment < layer.segments(); ++segment) {
      if (args.saved && options.checkpoint && recipe.is_lstm()) {
        const int64_t padded = packed.order().padded, at = begin * padded;
        std::copy_n(state.c + at, (end - begin) * padded,
                    args.saved + segment * layer.states() + at);
      }
      const Times times = layer.TimesOf(segment);
      for (int64_t done = 0; done < times.end - times.begin; done += chunk_steps) {
        const int64_t steps = std::min(chunk_steps, times.end - times.begin - done);
        const int64_t first = args.inputs.reverse ? times.end - done - steps : times.begin + done;
        f(Times{first, first + steps});
      }
    }
  };
  if (layer.apart()) {
    layer.ForSequences(shape.time, [&](int64_t begin, int64_t end) {
      typename Layer<T>::State own = state;
      own.own = true;
      own.zx += begin * chunk_steps * packed.order().columns;
      for_chunks(begin, end, [&](Times chunk) {
        own.first = chunk.begin;
        layer.InputProduct(chunk, begin, end, own.zx);
        layer.ForwardSteps(chunk, begin, end, own, slots, args.y);
      });
    });
  } else {
    for_chunks(0, shape.batch, [&](Times chunk) {
      state.first = chunk.begin;
      if (layer.in_place()) state.zx = slots.At(kXhatIh, chunk.begin);
      layer.InputProduct(chunk, state.zx);
      layer.ForSequences(chunk.end - chunk.begin, [&](int64_t begin, int64_t end) {
        layer.ForwardSteps(chunk, begin, end, state, slots, args.y);
      });
    });
  }
  layer.Unpad(state.h, args.h_n);
  layer.Unpad(state.c, args.c_n);
}

template <class T>
void BackwardLayer(const PackedLayer<T>& packed, const RnnBackwardArgs<T>& args,
                   const RnnOptions<T>& options, ParamSums<T>* shared, RnnMemory<T>& memory) {
  const RnnInputs<T>& in = args.inputs;
  const RnnShape& shape = in.shape;
  const CellRecipe& recipe = packed.call().recipe;
  const int64_t padded = packed.order().padded, columns = packed.order().columns;
  // With checkpoints, a segment's steps are recomputed to fill the slots.
  const bool again = options.checkpoint;
  const Layer<T> layer(packed, in, options, again ? Keep::kInCaches : Keep::kNothing);
  const int64_t rows = layer.segment_steps() * shape.batch, states = layer.states();

  ParamSums<T>& sums = shared ? *shared : memory.sums;
  if (!shared) sums.Reset(packed);
  const int64_t groups = std::max<int64_t>(1, layer.groups());
  T* const reset_sums = memory.reset_sums.Get(2 * groups * padded);
  std::fill_n(reset_sums, 2 * groups * padded, T{0});
  const typename Layer<T>::GroupSums group_sums{
      .cell = sums.Groups(groups), .h_reset = reset_sums, .c_reset = reset_sums + groups * padded};
  // `shared` collects rows, which are multiplied when x may no longer exist, so it keeps a copy of
  // x. Past the length of a sequence, x must not be read.
  const bool own_x = shared || in.lengths;
  const bool weight_ih = shared || args.dparams.weight_ih;
  const bool weight_hh = shared || args.dparams.weight_hh;
  const int64_t capacity = shared && rows > 0 ? (kProductRows + rows - 1) / rows * rows : rows;

  T* const state = memory.gradients.Get(7 * states);
  int64_t* const active = memory.active.Get(recipe.over == Over::kBatch ? shape.batch : 0);
  typename Layer<T>::Gradients gradients{
      .dh = state,
      .dc = state + states,
      .dcell = state + 2 * states,
      .room = state + 3 * states,
      .h_after = state + 4 * states,
      .dzx = nullptr,
      .dzh = nullptr,
      .h_before = nullptr,
      .first = 0,
      .active = active,
  };
  layer.Pad(args.dh_n, gradients.dh);
  layer.Pad(args.dc_n, gradients.dc);

  const SlotSizes kept = KeptSizes<T>(recipe, shape), step = StepSizes<T>(recipe, shape);
  T* const anew = memory.anew.Get(again ? layer.segment_steps() * NumbersOf(kept) : 0);
  T* const step_memory = memory.step.Get(again ? NumbersOf(step) : 0);
  T* const zx = memory.zx.Get(again && !layer.in_place() ? rows * columns : 0);
  typename Layer<T>::State restored{
      .h = state + 5 * states, .c = state + 6 * states, .zx = zx, .first = 0, .active = active};
  // The last allocation. If it or an earlier one throws, no output and no sum of `shared` has
  // changed.
  sums.Reserve(capacity, own_x, weight_ih, weight_hh);

  for (int64_t segment = layer.segments() - 1; segment >= 0; --segment) {
    const Times times = layer.TimesOf(segment);
    const int64_t steps = times.end - times.begin, m = steps * shape.batch;
    if (!sums.HasRoomFor(m)) sums.Multiply(nullptr, true, true, options.parallel_for);
    const typename ParamSums<T>::Rows to = sums.Add(m, capacity, own_x);
    gradients.dzx = to.dzx;
    gradients.dzh = to.dzh;
    gradients.h_before = to.h_before;
    gradients.first = restored.first = times.begin;
    Slots<T> filled;
    Slots<const T> slots;
    if (again) {
      filled = Slots<T>(anew, kept, times.begin, steps);
      slots = Slots<const T>(anew, kept, times.begin, steps);
      filled.Fill(step_memory, step);
      const T* c = recipe.is_lstm() ? args.saved + segment * states : nullptr;
      layer.RestoreState(times, args.y, c, restored);
      if (layer.in_place()) restored.zx = filled.At(kXhatIh, times.begin);
      layer.InputProduct(times, restored.zx);
    } else {
      slots = Slots<const T>(args.saved, kept, 0, shape.time);
    }
    layer.ForGroups(steps, [&](int64_t begin, int64_t end) {
      if (again) layer.ForwardSteps(times, begin, end, restored, filled, nullptr);
      layer.BackwardSteps(times, begin, end, args, slots, packed.hh_transposed(), gradients,
                          group_sums);
    });
    if (own_x) layer.CopyWithoutPadding(times, to.x);
    if (!shared || sums.waiting() >= kProductRows) {
      const T* x = own_x ? nullptr : in.x + times.begin * shape.batch * shape.inputs;
      sums.Multiply(x, weight_ih, weight_hh, options.parallel_for);
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

  layer.Unpad(gradients.dh, args.dh0);
  layer.Unpad(gradients.dc, args.dc0);
  if (!shared) sums.Write(args.dparams, options.parallel_for);
  for (int64_t j = 0; j < (groups - 1) * padded; ++j) {
    for (T* sum : {group_sums.h_reset, group_sums.c_reset}) sum[j % padded] += sum[padded + j];
  }
  const auto write = [&](const T* from, T* to) {
    if (to) std::copy_n(from, shape.hidden, to);
  };
  write(group_sums.h_reset, args.dh_reset);
  write(group_sums.c_reset, args.dc_reset);
}

#define PLANISH_INSTANTIATE(T)                                                     \
  template int64_t SavedSize<T>(const CellRecipe&, const RnnShape&, bool);         \
  template void ForwardLayer(const PackedLayer<T>&, const RnnForwardArgs<T>&,      \
                             const RnnOptions<T>&, RnnMemory<T>&);                 \
  template void BackwardLayer(const PackedLayer<T>&, const RnnBackwardArgs<T>&,    \
                              const RnnOptions<T>&, ParamSums<T>*, RnnMemory<T>&); \
  template class ThreadMemory<T>;
PLANISH_RNN_TYPES(PLANISH_INSTANTIATE)
#undef PLANISH_INSTANTIATE

}  // namespace planish::internal
