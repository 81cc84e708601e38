#ifndef PLANISH_SRC_RNN_CPU_ORDER_H_
#define PLANISH_SRC_RNN_CPU_ORDER_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "src/rnn/cell.h"

// The order of the G sums of a step in memory. The gates of a norm are adjacent and interleaved by
// vectors, so that a norm reads one contiguous range. For gates a and b and vectors of two
// elements: a0 a1 b0 b1 a2 a3 b2 b3 ... The next group of gates follows. Units are padded to whole
// cache lines, with weights, gains and biases of 0.
namespace planish::internal {

// --- Tuning constants (docs/tuning.md) ---

/// The multiple to which units are padded: the elements of a cache line, so that sizes do not
/// depend on the SIMD target.
template <class T>
inline constexpr int64_t kUnitsOfLine = 64 / static_cast<int64_t>(sizeof(T));

// --- End of tuning constants ---

template <class T>
constexpr int64_t PaddedUnits(int64_t hidden) {
  return (hidden + kUnitsOfLine<T> - 1) / kUnitsOfLine<T> * kUnitsOfLine<T>;
}

/// Returns the groups of adjacent gates: those of a norm, or without norms those whose sums are
/// added.
constexpr Groups LayoutOf(const CellRecipe& recipe) {
  if (recipe.norms() > 0) return recipe.groups;
  return recipe.splits_n() ? Groups{2, 1} : Groups{static_cast<int8_t>(recipe.gates())};
}

struct Order {
  /// The range of a group of gates.
  struct Group {
    int64_t begin = 0;  ///< its first column
    int64_t gates = 0;
  };
  /// The position of a gate's sums: those of the u-th vector of units begin at begin + u * step.
  struct Gate {
    int64_t begin = 0, step = 0;
  };

  int64_t hidden = 0;   ///< H
  int64_t lanes = 0;    ///< units in a vector
  int64_t padded = 0;   ///< H and padding
  int64_t columns = 0;  ///< G and padding
  int groups = 0;
  std::array<Group, 4> group;
  std::array<Gate, 4> gate;

  int64_t gates() const { return columns / padded; }

  /// Returns the row gate * H + unit of the weights whose sum is in `column`; -1 for padding.
  int64_t RowOf(int64_t column) const {
    int64_t first = 0;
    for (int g = 0; g < groups; ++g) {
      const int64_t gates = group[static_cast<size_t>(g)].gates;
      const int64_t at = column - group[static_cast<size_t>(g)].begin;
      if (at < gates * padded) {
        const int64_t vector = at / lanes;
        const int64_t unit = vector / gates * lanes + at % lanes;
        return unit < hidden ? (first + vector % gates) * hidden + unit : -1;
      }
      first += gates;
    }
    return -1;
  }
};

/// Returns the order for T and vectors of `lanes` elements; `lanes` must divide a cache line.
template <class T>
Order OrderOf(const CellRecipe& recipe, int64_t hidden, int64_t lanes) {
  Order order;
  order.hidden = hidden;
  order.lanes = lanes;
  order.padded = PaddedUnits<T>(hidden);
  order.columns = recipe.gates() * order.padded;
  size_t gate = 0;
  int64_t begin = 0;
  for (const int8_t gates : LayoutOf(recipe)) {
    if (gates == 0) break;
    order.group[static_cast<size_t>(order.groups++)] = {begin, gates};
    for (int64_t g = 0; g < gates; ++g) order.gate[gate++] = {begin + g * lanes, gates * lanes};
    begin += gates * order.padded;
  }
  return order;
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CPU_ORDER_H_
