#ifndef PLANISH_SRC_RNN_KINDS_TESTING_H_
#define PLANISH_SRC_RNN_KINDS_TESTING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

#include "planish/rnn.h"
#include "src/rnn/cell.h"

// The kinds of layers that tests of recurrent layers run on.
namespace planish::tests {

/// The form of weight_hh.
enum class Recurrence : uint8_t { kDense, kProjected, kHeads };

/// A cell, and the form of its recurrence.
struct Kind {
  Cell cell;
  Recurrence recurrence;
};

/// A few cells with each recurrence but the dense one.
inline const std::vector<Kind> kOtherRecurrences = {{Cell::kLstm, Recurrence::kProjected},
                                                    {Cell::kLnLstm, Recurrence::kProjected},
                                                    {Cell::kLnLstmContrib, Recurrence::kProjected},
                                                    {Cell::kRnn, Recurrence::kHeads},
                                                    {Cell::kLnLstm, Recurrence::kHeads},
                                                    {Cell::kGru, Recurrence::kHeads},
                                                    {Cell::kSlstm, Recurrence::kHeads}};

/// Whether tests run a few kinds of layers (PLANISH_SHORT_TESTS, set for runs in an emulator).
inline const bool kAreShort = std::getenv("PLANISH_SHORT_TESTS") != nullptr;

/// All cells, and a few with each other recurrence: for what depends on the recurrence but not on
/// the cell, as the division of work among threads does. In short tests, a few cells.
inline const std::vector<Kind> kSomeKinds = [] {
  std::vector<Kind> kinds = kOtherRecurrences;
  std::vector<Cell> cells = {Cell::kRnn, Cell::kLstm, Cell::kLnLstm, Cell::kLnGru, Cell::kSlstm};
  if (!kAreShort) cells.assign(internal::kCells.begin(), internal::kCells.end());
  for (const Cell cell : cells) kinds.push_back({cell, Recurrence::kDense});
  return kinds;
}();

/// All cells, with every recurrence that they can have. In short tests, kSomeKinds.
inline const std::vector<Kind> kKinds = [] {
  if (kAreShort) return kSomeKinds;
  std::vector<Kind> kinds;
  for (const Recurrence recurrence :
       {Recurrence::kDense, Recurrence::kProjected, Recurrence::kHeads}) {
    for (const Cell cell : internal::kCells) {
      const bool lstm = internal::RecipeOf(cell).is_lstm();
      if (recurrence != Recurrence::kProjected || lstm) kinds.push_back({cell, recurrence});
    }
  }
  return kinds;
}();

inline bool IsOfCuda(Cell cell) { return internal::RecipeOf(cell).has_cuda_kernels(); }

/// Returns the cells that have CUDA kernels.
inline std::vector<Cell> CudaCells() {
  std::vector<Cell> cells;
  std::ranges::copy_if(internal::kCells, std::back_inserter(cells), IsOfCuda);
  return cells;
}

/// Returns their kinds of layers. Projections and heads add kernels that do not depend on the cell.
inline std::vector<Kind> CudaKinds() {
  std::vector<Kind> kinds;
  std::ranges::copy_if(kSomeKinds, std::back_inserter(kinds), IsOfCuda, &Kind::cell);
  return kinds;
}

/// Returns the name of a kind in tests: "ln_lstm", "ln_lstm_heads", ...
inline std::string NameOf(const Kind& kind) {
  const char* const ends[] = {"", "_projected", "_heads"};
  return std::string(internal::NameOf(kind.cell)) + ends[static_cast<size_t>(kind.recurrence)];
}

/// Returns the shape with a projection to about half of the units, or with the least number of
/// heads above one. For a prime number of units, each is a head.
inline RnnShape Shaped(RnnShape shape, Recurrence recurrence) {
  if (recurrence == Recurrence::kProjected) shape.projected = shape.hidden / 2;
  if (recurrence == Recurrence::kHeads && shape.hidden > 1) {
    shape.heads = 2;
    while (shape.hidden % shape.heads != 0) ++shape.heads;
  }
  return shape;
}

}  // namespace planish::tests

#endif  // PLANISH_SRC_RNN_KINDS_TESTING_H_
