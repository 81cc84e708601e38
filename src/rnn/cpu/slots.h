#ifndef PLANISH_SRC_RNN_CPU_SLOTS_H_
#define PLANISH_SRC_RNN_CPU_SLOTS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "planish/rnn.h"
#include "src/rnn/cell.h"
#include "src/rnn/cpu/cells.h"
#include "src/rnn/cpu/order.h"

// Arrays that a step writes: those that forward saves for backward, and its own temporary arrays.
namespace planish::internal {

enum Slot : uint8_t {
  kZh,         ///< zh, unless the matrix product adds it to zx
  kScaled,     ///< the sums after their norms, if zx is saved
  kScaledN,    ///< a GRU's ah_n after its norm, if zh is saved
  kXhatIh,     ///< the normalized zx, or zx + zh
  kXhatHh,     ///< the normalized zh
  kGates,      ///< the gates after their activations
  kCandidate,  ///< a GRU's ah_n, or the whole sum of n
  kBefore,     ///< the cell state before the step
  kTanhC,      ///< tanh of the c that h uses
  kXhatC,      ///< over the batch: the normalized c
  kRstdIh,     ///< rstd of each norm: of a row, or, over the batch, of a column
  kRstdHh,
  kNormC,  ///< coefficients of c, kCoefficients for a row; over the batch rstd of a column
  kSlots,
};

using SlotSizes = std::array<int64_t, kSlots>;

/// Returns the elements of all slots.
inline int64_t ElementsOf(const SlotSizes& sizes) {
  int64_t sum = 0;
  for (const int64_t size : sizes) sum += size;
  return sum;
}

/// Returns the elements of each slot that one step of the whole batch saves for backward.
template <class T>
SlotSizes KeptSizes(const CellRecipe& recipe, const RnnShape& shape) {
  const int64_t padded = PaddedUnits<T>(shape.hidden), columns = recipe.gates() * padded;
  const int64_t states = shape.batch * padded, sums = shape.batch * columns;
  const bool any = recipe.sums != Sums::kPlain, separate = recipe.sums == Sums::kSeparate;
  const bool over_rows = recipe.over == Over::kRow, cell = recipe.cell != CellNorm::kNone;
  const int64_t rstds = over_rows ? shape.batch * recipe.norms() : columns;
  const int64_t coefficients_c = over_rows ? shape.batch * kCoefficients : padded;
  SlotSizes sizes{};
  sizes[kXhatIh] = any ? sums : 0;
  sizes[kXhatHh] = separate ? sums : 0;
  sizes[kGates] = recipe.is_lstm() || recipe.is_gru() ? sums : 0;
  sizes[kCandidate] = recipe.is_gru() ? states : 0;
  sizes[kBefore] = sizes[kTanhC] = recipe.is_lstm() ? states : 0;
  sizes[kXhatC] = cell && !over_rows ? states : 0;
  sizes[kRstdIh] = any ? rstds : 0;
  sizes[kRstdHh] = separate ? rstds : 0;
  sizes[kNormC] = cell ? coefficients_c : 0;
  return sizes;
}

/// Returns the elements of the slots that a step needs besides those that are saved.
template <class T>
SlotSizes StepSizes(const CellRecipe& recipe, const RnnShape& shape) {
  SlotSizes sizes = KeptSizes<T>(recipe, shape);
  const int64_t sums = shape.batch * recipe.gates() * PaddedUnits<T>(shape.hidden);
  if (!recipe.uses_only_sum()) sizes[kZh] = sums;
  if (recipe.over == Over::kRow) sizes[kRstdIh] = sizes[kRstdHh] = 0;
  for (const Slot slot : {kXhatIh, kXhatHh, kGates, kCandidate, kBefore, kTanhC}) sizes[slot] = 0;
  if (recipe.sums != Sums::kPlain) sizes[kScaled] = sums;
  if (recipe.sums != Sums::kPlain && recipe.splits_n()) sizes[kScaledN] = sums / recipe.gates();
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

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_SLOTS_H_
